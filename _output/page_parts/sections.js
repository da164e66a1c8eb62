// Draws the other sections from the modes' answers, and starts drawing the page.

function roofline() {
  const answer = ANSWERS.roofline;
  const { step_summary: sums, skipped_groups: skipped, peaks_used: peaks } = answer;
  drawRoofline(byId("roofline"), DATA);
  alsoBefore("roofline", (host) => drawRoofline(host, BEFORE));
  section(
    "roofline",
    figures([
      ["chip", answer.chip, peaks.source],
      ["of the roof, on average", figure("share", sums.weighted_avg_roofline_util)],
      ["of the math peak", figure("share", sums.weighted_avg_mfu)],
      ["of the HBM peak", figure("share", sums.weighted_avg_hbm_util)],
      ["beyond the roof", figure("time", sums.shortfall_per_op_ps)],
      ["without a known roof", figure("time", sums.without_roof_ps)],
    ]),
  );
  addTable(
    "roofline",
    "roofline",
    answer.groups,
    [
      lineColumn,
      column("shortfall_per_op_ps", "lost", "time", { bar: true, title: "time beyond the roofs of the ops" }),
      totalColumn,
      column("kernel", "kernel", "text", { value: (row) => row.kernel ?? "", most: 24 }),
      column("roofline_util", "of roof", "share"),
      column("bound", "bound", "text"),
      column("dtype", "dtype", "text"),
      column("arithmetic_intensity", "flops/byte", "number"),
      column("mfu", "of math", "share"),
      column("hbm_util", "of HBM", "share"),
    ],
    { label: "groups with a known roof", rest: rest(answer.tail.n_groups_omitted, "groups", answer.tail.dur_ps) || leftOut("roofline", "groups") },
  );
  addTable(
    "roofline",
    "skipped",
    skipped.top_skipped,
    [lineColumn, column("shortfall_per_op_ps", "lost", "time"), totalColumn, column("top_signature", "what", "text"), column("reason", "why", "text", { value: (row) => row.reason.replaceAll("_", " ") }), column("hbm_util", "of HBM", "share")],
    { label: "the costliest groups of which flops, bytes or a peak are unknown" },
  );
}

function comm() {
  const { rows, tail, totals } = ANSWERS.comm;
  section(
    "comm",
    figures([
      ["exposed", figure("time", totals.exposed_ps)],
      ...(totals.exposed_ps ? splitFigures(totals.peers) : []),
      ["in flight", figure("time", totals.in_flight_union_ps), "time with at least one collective in flight"],
      ["hidden", figure("time", totals.hidden_union_ps), "time in flight while ops run that neither wait nor communicate"],
      ["waits for the host", figure("time", totals.host_ps)],
    ]),
  );
  const kinds = Object.entries(totals.by_collective).sort((a, b) => exposedOf(b[1]) - exposedOf(a[1]));
  if (kinds.length) section("comm", collectiveBars(kinds));
  addTable(
    "comm",
    "comm",
    rows,
    [
      lineColumn,
      column("exposed", "exposed", "time", { value: exposedOf, bar: true }),
      ...splitColumns(rows),
      column("collective", "collective", "text"),
      column("mode", "mode", "text"),
      column("covered_ps", "hidden", "time", { none: "communication on the core is not hidden; for other communication, the start is unknown" }),
      shareColumn,
      nColumn,
      column("payload_bytes", "payload", "bytes"),
      column("bus_gbps", "bus GB/s", "number"),
      column("groups", "groups", "text", { most: 24 }),
    ],
    { label: "communication by line", rest: rest(tail.n_rows_omitted, "rows", tail.sync_dur_ps + tail.wait_dur_ps) || leftOut("comm", "rows") },
  );
  foldIfSmall("comm", totals.exposed_ps + totals.host_ps);
}

function splitFigures(peers) {
  if (!peers || peers.transfer_ps === null) return [];
  return [
    ["of which transfers", figure("time", peers.transfer_ps), "time in which all devices of a collective take part"],
    ["waits for late devices", figure("time", peers.peer_wait_ps), "time until the last device joins"],
    ["not compared", figure("time", peers.unmatched_ps), "executions without a counterpart on other devices"],
  ];
}

// Returns columns that split the exposed time, if other devices in the file have the same
// executions.
function splitColumns(rows) {
  if (rows.every((row) => row.transfer_ps === null)) return [];
  const why = () => "no other device in the file has the same execution";
  return [
    column("transfer_ps", "transfers", "time", { why, title: "exposed time in which all devices take part" }),
    column("peer_wait_ps", "waits", "time", { why, title: "exposed time until the last device joins" }),
  ];
}

const exposedOf = (row) => row.sync_dur_ps + row.wait_dur_ps;

// Draws a bar for each collective: its time on the core, and the time during which the core waits.
function collectiveBars(kinds) {
  const rows = kinds.map(([name, sums]) => ({
    name,
    value: exposedOf(sums),
    whole: exposedOf(kinds[0][1]) || 1,
    parts: [["sync_dur_ps", "on the core", ""], ["wait_dur_ps", "the core waits", " hatched"]]
      .filter(([part]) => sums[part])
      .map(([part, label, look]) => ({
        cls: `${/host/.test(name) ? "c-host" : "c-collective"}${look}`,
        value: sums[part],
        lines: [`${readable(name)}, ${label}`, asTime(sums[part]), `${sums.n_executions} executions, payload ${asBytes(sums.payload_bytes)}`],
        go: () => tables.comm.goToRows(name),
      })),
  }));
  const host = tracks(rows, "exposed communication by collective");
  return element("div", {}, host, legend(["c-collective", "on the core"], ["c-collective hatched", "the core waits"]));
}

function memory() {
  const answer = ANSWERS.memory;
  if (hasAnswer("memory", "memory")) {
    section(
      "memory",
      figures([
        ["at the peak", figure("bytes", answer.peak_bytes)],
        ["reserved", figure("bytes", answer.reserved_bytes)],
        ["fragmentation", figure("bytes", answer.fragmentation_bytes)],
        ["padding", figure("bytes", answer.padding_bytes, "no buffer is known to hold an array")],
        ["reached at", answer.peak_at ? nameElement(answer.peak_at.hlo_op) : figure("number", null, "unknown: the program has no heap trace")],
      ]),
      memoryBar(answer),
      legend(...Object.entries(answer.by_kind).map(([kind, bytes]) => [`m-${kind}`, `${kind} `, figure("bytes", bytes)])),
    );
  }
  section("memory", element("h3", {}, "Reported by the runtime's allocator"));
  if (!answer.runtime) {
    section("memory", element("p", { class: "absent" }, "? The capture has no allocator events for this device."));
  } else {
    const { runtime } = answer;
    section("memory", figures(Object.entries(runtime).map(([name, value]) => [name.replace(/_(bytes|ps)$/, "").replaceAll("_", " "), figure(kindOf(name), value, "not reported by the allocator")])));
  }
  if (DATA.parts.memory !== "ok") return;
  addTable(
    "memory",
    "buffers",
    answer.buffers,
    [
      rankColumn,
      { ...lineColumn, value: (row) => row.source_inner, node: (row) => lineElement({ source_inner: row.source_inner, agg_key: row.tf_op }) },
      column("bytes", "size", "bytes", { bar: true }),
      column("pct_of_peak", "% of peak", "percent"),
      column("kind", "kind", "text"),
      column("shape", "shape", "text", { why: () => "not an array of the program" }),
      opColumn,
    ],
    { label: "buffers", rest: answer.tail.n_buffers_omitted ? `${answer.tail.n_buffers_omitted} smaller buffers (${asBytes(answer.tail.bytes)}) are not on this page.` : leftOut("memory", "buffers") },
  );
}

// Draws the live buffers at the peak by kind.
function memoryBar({ by_kind: kinds, peak_bytes: peak }) {
  const parts = Object.entries(kinds).map(([kind, bytes]) => {
    const share = asPercent((100 * bytes) / peak);
    return { name: kind, share, value: bytes, cls: `m-${kind}`, lines: [`${kind} ${share}, ${asBytes(bytes)}`], go: () => tables.buffers?.goToRows(kind) };
  });
  return bar(parts, "buffers that are live at the peak");
}

function idle() {
  const answer = ANSWERS.idle;
  const causes = Object.entries(answer.idle_by_cause);
  const { between_steps_ps: between, period_ps: period } = answer;
  section(
    "idle",
    figures([
      ...(between ? [["between steps", figure("time", between), "mean time of a period in which no step runs"]] : []),
      ...causes.map(([cause, time]) => [cause.replaceAll("_", " "), figure("time", time)]),
    ]),
  );
  const start = Number(PAGE.step_window_ps[0]);
  addTable(
    "idle",
    "idle",
    answer.gaps,
    [
      column("at", "at", "time", { value: (row) => row.start_ps - start }),
      column("dur_ps", "time", "time"),
      shareColumn,
      column("cause", "cause", "text", { value: (row) => Object.keys(row.cause).join(", ").replaceAll("_", " ") }),
      column("after_hlo_op", "after", "text", { value: (row) => nameOfText(row.after_hlo_op), why: () => "the step begins here" }),
      column("before_hlo_op", "before", "text", { value: (row) => nameOfText(row.before_hlo_op), why: () => "the step ends here" }),
      column("host", "host activity", "text", { value: hostOf, why: () => "the capture has no host events at this time" }),
    ],
    { label: "the longest idle gaps", rest: leftOut("idle", "gaps") },
  );
  addTable(
    "idle",
    "host-events",
    answer.host_events ?? [],
    [column("event", "event", "text", { most: 80 }), column("dur_ps", "time", "time"), column("n_threads", "threads", "count")],
    { label: "what the host did in the gaps" },
  );
  // The section stays open if the device waits between steps.
  if (!between || 200 * between < period) foldIfSmall("idle", PAGE.totals.idle_duration_ps);
}

const nameOfText = (text) => (text === null ? null : text.split(" = ")[0].replace(/^%/, ""));

function hostOf(row) {
  if (!row.host) return null;
  return row.host.filter((activity) => !activity.still).map((activity) => activity.event)[0] ?? "waits";
}

function lines() {
  const { groups, tail } = ANSWERS.by_source;
  addTable(
    "lines",
    "lines",
    groups,
    [
      lineColumn,
      { ...totalColumn, bar: true },
      column("kind", "kind", "text"),
      shareColumn,
      nColumn,
      column("flops_sum", "flops", "count"),
      column("hbm_bytes_sum", "HBM", "bytes"),
      column("what", "what", "text", { value: (row) => row.hlo_op_breakdown[0]?.signature ?? null, most: 30 }),
      column("scope", "scope", "text", { value: (row) => row.scopes[0]?.scope ?? null, why: () => "the ops of this row have no scope" }),
    ],
    { label: "source lines", untitled: true, rest: rest(tail.n_groups_omitted, "groups", tail.dur_ps) || leftOut("by_source", "groups") },
  );
}

function layers() {
  const answer = ANSWERS.by_scope;
  addTable(
    "layers",
    "layers",
    answer.scopes,
    [
      column("scope", "scope", "text", { value: (row) => row.scope || "(all)", most: 60 }),
      { ...totalColumn, bar: true },
      column("self_dur_ps", "self", "time"),
      shareColumn,
      nColumn,
      ...["forward", "backward", "recompute"].map((phase) => column(phase, phase, "time", { value: (row) => row.phases[phase] ?? 0 })),
    ],
    { label: "scopes", untitled: true, rest: leftOut("by_scope", "scopes") || (answer.n_scopes_omitted ? `${answer.n_scopes_omitted} deeper scopes are not on this page.` : "") },
  );
  const { no_scope: none } = answer;
  if (none.n_executions) section("layers", figures([["without a scope", figure("time", none.dur_ps)], ["executions", figure("count", none.n_executions)]]));
}

function ops() {
  const { ops: rows, tail } = ANSWERS.by_op;
  addTable(
    "ops",
    "ops",
    rows,
    [
      rankColumn,
      lineColumn,
      lostColumn,
      totalColumn,
      classColumn,
      opColumn,
      shareColumn,
      nColumn,
      column("shape", "output", "text", { most: 22 }),
      column("achieved_tflops", "TFLOPS", "number"),
      column("achieved_gbps", "GB/s", "number"),
    ],
    { label: "ops", untitled: true, classes: true, rest: rest(tail.n_ops_omitted, "ops", tail.dur_ps) || leftOut("by_op", "ops") },
  );
}

function kernels() {
  const { kernels: rows, tail } = ANSWERS.kernel;
  if (!rows.length) {
    section("kernels", element("p", { class: "absent" }, "No kernel ran in this step."));
    return;
  }
  const traced = rows.filter((row) => row.regions);
  if (traced.length) section("kernels", regionBars(traced));
  else section("kernels", element("p", { class: "absent" }, "? The capture does not show what happens inside kernels; the notes say how to capture that."));
  const regions = traced.flatMap((row) => row.regions.map((region) => ({ kernel: row.kernel, ...region })));
  addTable(
    "kernels",
    "regions",
    regions,
    [
      column("region", "region", "text", { value: (row) => "– ".repeat(row.depth) + row.region }),
      column("self_dur_ps", "time", "time", { bar: true, title: "excluding inner regions" }),
      column("total_dur_ps", "with inner regions", "time"),
      column("pct_of_kernel", "% of kernel", "percent"),
      column("n", "n", "count"),
      column("waits", "waits", "text", { value: (row) => (row.waits ? "only waits" : "") }),
      column("kernel", "kernel", "text"),
    ],
    { label: "regions" },
  );
  const why = () => "the capture has no regions for this kernel";
  addTable(
    "kernels",
    "inside",
    rows,
    [
      rankColumn,
      lineColumn,
      lostColumn,
      totalColumn,
      column("kernel", "kernel", "text"),
      shareColumn,
      nColumn,
      column("waiting_ps", "waits", "time", { why }),
      column("computing_ps", "body", "time", { why }),
      column("vmem_used_bytes", "VMEM", "bytes"),
    ],
    { label: "kernels", untitled: !traced.length, rest: rest(tail.n_kernels_omitted, "kernels", tail.dur_ps) || leftOut("kernel", "kernels") },
  );
  foldIfSmall("kernels", rows.reduce((sum, row) => sum + row.total_dur_ps, tail.dur_ps));
}

// Draws a bar for each kernel: each region excluding inner regions, and the time outside all
// regions.
function regionBars(traced) {
  const rows = traced.map((row) => ({
    name: row.kernel,
    value: row.total_dur_ps,
    whole: row.total_dur_ps,
    parts: [...row.regions, { region: "outside all regions", self_dur_ps: row.outside_regions_ps, n: null }]
      .filter((part) => row.total_dur_ps && 1000 * part.self_dur_ps >= row.total_dur_ps)
      .map((part) => ({
        cls: part.n === null ? "c-other" : part.waits ? "c-kernel hatched" : "c-kernel",
        value: part.self_dur_ps,
        lines: [
          readable(part.region),
          `${asTime(part.self_dur_ps)}, ${asPercent((100 * part.self_dur_ps) / row.total_dur_ps)} of ${readable(row.kernel)}`,
          part.n === null ? "" : `${part.n} times`,
        ],
        go: () => tables.inside.goToRows(row.kernel),
      })),
  }));
  const host = tracks(rows, "regions inside kernels");
  return element("div", {}, host, legend(["c-kernel", "a region"], ["c-kernel hatched", "only waits for a copy"], ["c-other", "outside all regions"]));
}

function moves() {
  const answer = ANSWERS.non_compute;
  const changed = (row) => [row.dtype_change && "cast", row.layout_change && "layout"].filter(Boolean).join(", ");
  addTable(
    "moves",
    "moves",
    answer.by_source_within_category,
    [
      lineColumn,
      { ...totalColumn, bar: true },
      column("hlo_category", "category", "text"),
      column("likely", "likely line", "text", { value: likelyLine, most: 60 }),
      nColumn,
      column("changes", "changes", "text", { value: changed }),
      column("shapes_in", "from", "text", { value: (row) => row.shapes_in[0] ?? null, most: 26 }),
      column("shapes_out", "to", "text", { value: (row) => row.shapes_out[0] ?? null, most: 26 }),
    ],
    { label: "data movement and waits by line", untitled: true, rest: rest(answer.tail.n_groups_omitted, "groups", answer.tail.dur_ps) || leftOut("non_compute", "by_source_within_category") },
  );
  const rows = answer.by_source_within_category;
  foldIfSmall("moves", rows.reduce((sum, row) => sum + row.total_dur_ps, answer.tail.dur_ps));
}

// Formats the first likely line. Likely lines are inferred, so they have a column of their own.
const likelyLine = (row) => {
  const [first, ...others] = row.likely_sources ?? [];
  const line = first?.source_user ?? first?.source_inner;
  if (!line) return "";
  return others.length ? `${shortLine(line)} and ${others.length} more` : shortLine(line);
};

function steps() {
  const { steps: rows, steps_rollup: sums } = ANSWERS.summary;
  if (!rows.length) {
    section("steps", element("p", { class: "absent" }, "The trace marks no steps."));
    return;
  }
  section(
    "steps",
    stepColumns(rows),
    figures([
      ["steps", figure("count", sums.n)],
      ["without ops", figure("count", sums.n_without_ops)],
      ["between steps", figure("time", sums.between_steps_ps)],
      ["of the capture", figure("percent", sums.between_steps_pct)],
    ]),
  );
  addTable(
    "steps",
    "steps",
    rows,
    [
      column("index", "index", "number"),
      column("name", "name", "text"),
      column("duration_ps", "time", "time"),
      column("n_xla_ops_events", "events", "count"),
      column("picked", "shown", "text", { value: (row) => (row.picked ? "on this page" : "") }),
    ],
    { label: "steps", untitled: true, rest: leftOut("summary", "steps") },
  );
}

function program() {
  if (!hasAnswer("program", "program")) return;
  const answer = ANSWERS.program;
  section(
    "program",
    figures([
      ["name", answer.name === null ? figure("number", null) : nameElement(answer.name)],
      ["devices", figure("count", answer.n_devices, "the program has no device assignment")],
      ["computations", figure("count", answer.n_computations)],
      ["instructions", figure("count", answer.n_instructions)],
      ["fusions", figure("count", answer.n_fusions)],
      ["aliased", figure("bytes", answer.aliased_bytes), "bytes of parameters whose memory an output reuses"],
      ["donated, not reused", figure("bytes", answer.donated_unused_bytes), "bytes of donated parameters whose memory no output reuses"],
    ]),
  );
  addTable(
    "program",
    "collectives",
    answer.collectives,
    [
      column("collective", "collective", "text"),
      column("how", "how", "text"),
      column("plan", "plan", "text", { value: (row) => row.plan?.join(", ") ?? null, why: () => "the program has no plan" }),
      column("n_instructions", "in the program", "count"),
      nColumn,
      column("sync_dur_ps", "on the core", "time"),
      column("wait_dur_ps", "waiting", "time"),
      column("payload_bytes", "payload", "bytes"),
    ],
    { label: "collectives", rest: leftOut("program", "collectives") },
  );
  addTable(
    "program",
    "kernels",
    answer.kernels,
    [
      column("kernel", "kernel", "text"),
      totalColumn,
      nColumn,
      column("vmem_used_bytes", "VMEM used", "bytes"),
      column("vmem_limit_bytes", "VMEM limit", "bytes", { why: () => "the kernel sets no limit" }),
      column("declared", "declared flops", "count", { value: (row) => row.declared?.flops ?? null, why: () => "the kernel declares no cost" }),
    ],
    { label: "kernels", rest: leftOut("program", "kernels") },
  );
  addTable(
    "program",
    "retries",
    answer.retries,
    [opColumn, column("retry_count", "retries", "count"), totalColumn, nColumn],
    { label: "retries", rest: leftOut("program", "retries") },
  );
  addTable(
    "program",
    "parameters",
    answer.parameters,
    [
      column("number", "#", "number"),
      column("path", "path", "text", { why: () => "part of a tuple" }),
      column("bytes", "size", "bytes"),
      column("shape", "shape", "text"),
      column("global_shape", "global shape", "text"),
      column("sharding", "sharding", "text"),
      column("aliased_to_output", "aliased", "text", { value: (row) => (row.aliased_to_output ? "yes" : "no") }),
    ],
    { label: "parameters", rest: answer.tail.n_parameters_omitted ? `${answer.tail.n_parameters_omitted} smaller parameters are not on this page.` : leftOut("program", "parameters") },
  );
}

function parts() {
  const lost = Object.entries(DATA.parts).filter(([, status]) => status !== "ok");
  const reasons = lost.map(([mode, status]) => `${mode}: ${status}`).join(", ");
  byId("parts").append(
    element("p", {}, "Made by compute-breakdown --mode page. The script element `data` in this file contains the JSON of all modes; FIELDS.md describes each field."),
    reasons ? element("p", {}, `No answer: ${reasons}.`) : "",
  );
}

head();
changes();
lead();
budget();
findings();
lines();
layers();
new Flame(byId("flame"), DATA);
alsoBefore("flame", (host) => new Flame(host, BEFORE));
roofline();
comm();
memory();
idle();
ops();
kernels();
moves();
steps();
program();
parts();
drawAll();
drawWhenWidthsChange();
followNavigation();
document.body.dataset.ready = "true";
