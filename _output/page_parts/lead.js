// Draws the header and the summary: the headline, what to change first, figures for the step,
// notes.

const MOST_OF_LEAD = 3;

function head() {
  const name = PAGE.step_name === null ? "all ops" : PAGE.step_name || "(unnamed)";
  document.title = `${shortened(readable(PAGE.xplane_file), 60)}, step ${shortened(readable(name), 40)}`;
  byId("product").append(
    element("strong", {}, `compute-breakdown ${DATA.version}`),
    nameElement(PAGE.xplane_file, 60),
    element("span", {}, "captured ", captureDate()),
  );
  const clocks = { device: "the device's", trace: "the trace's", mixed: "mixed" };
  const { chip, chip_is_assumed } = ANSWERS.bottleneck;
  const facts = [
    ["device", nameElement(`${PAGE.device}${PAGE.device_type ? `, ${PAGE.device_type}` : ""}`)],
    ...(chip_is_assumed ? [["chip", `unknown, ${chip} assumed (--chip)`]] : []),
    ["step", nameElement(PAGE.step_name === null ? name : `${name} (index ${PAGE.step_id})`, 60)],
    ["program", PAGE.program.name === null ? figure("number", null, "the trace names no program") : nameElement(PAGE.program.name, 48)],
    ["clock", clocks[PAGE.clock] ?? readable(PAGE.clock)],
    ["from", nameElement(PAGE.profile_dir, 60)],
  ];
  byId("facts").append(...facts.map(([term, value]) => element("div", {}, element("dt", {}, term), element("dd", {}, value))));
}

function captureDate() {
  if (DATA.captured_at_ns === null) return figure("number", null, "the trace does not say when it was captured");
  const date = new Date(DATA.captured_at_ns / 1e6);
  // JavaScript has no dates beyond the year 275760.
  if (Number.isNaN(date.valueOf())) return figure("number", null, "the trace has an impossible date");
  const text = `${date.toISOString().slice(0, 16).replace("T", " ")} UTC`;
  return element("time", { datetime: date.toISOString(), "data-value": DATA.captured_at_ns }, text);
}

function lead() {
  byId("title").append(readable((ANSWERS.compare ?? ANSWERS.bottleneck).headline));
  if (ANSWERS.compare) section("lead", element("h2", {}, "After the change"), element("p", { class: "after" }, readable(ANSWERS.bottleneck.headline)));
  const causes = causesOfLead(ANSWERS.bottleneck.causes).slice(0, MOST_OF_LEAD).map(causeEntry);
  const losses = lossesOf(ANSWERS.bottleneck).slice(0, MOST_OF_LEAD);
  const hasUnknown = losses.some(({ cls }) => cls === "kernel");
  const told = new Set();
  // Show advice that several entries share only once.
  const once = (entry) => item({ ...entry, helps: told.has(entry.helps) ? null : told.add(entry.helps) && entry.helps });
  section(
    "lead",
    element("div", { class: "columns-of-lead" }, itemList("Change first", causes.map(once)), itemList(hasUnknown ? "Most time lost, or unknown" : "Most time lost", losses.map(lossEntry).map(once))),
    stepFigures(),
    noteLists(),
  );
}

function itemList(title, items) {
  return items.length ? element("div", { class: "items" }, element("h2", {}, title), element("ol", {}, ...items)) : null;
}

// Returns an entry of the summary. The bar's length is the share of the step.
function item({ name, row, ps, pct, of = "", cls, helps, go, title }) {
  const filled = element("div", { class: cls, "data-value": ps });
  filled.style.width = `${Math.min(100, pct ?? 0)}%`;
  return element(
    "li",
    { title },
    element(
      "div",
      { class: "item-head" },
      element("button", { type: "button", onclick: go }, name),
      lineOf(row) === null ? "" : nameElement(lineOf(row), 44, shortLine(lineOf(row))),
      element("span", { class: "item-time" }, figure("time", ps), element("strong", {}, asPercent(pct), of)),
    ),
    element("div", { class: "item-bar" }, filled),
    helps ? element("p", {}, readable(helps)) : "",
  );
}

// Moves the headline's cause to the front: the first cause with confidence `seen` that gains at
// least 5 % of the step.
function causesOfLead(causes) {
  const named = causes.find((row) => row.confidence === "seen" && row.gain_pct_of_step >= 5);
  return named ? [named, ...causes.filter((row) => row !== named)] : causes;
}

function causeEntry(row) {
  return {
    name: row.confidence === "likely" ? `probably ${causeName(row)}` : causeName(row),
    row,
    ps: row.gain_ps,
    pct: row.gain_pct_of_step,
    of: row.cause === "pause_between_steps" ? " of the period" : "",
    cls: "cause",
    helps: row.what_helps,
    title: readable(row.says),
    go: () => tables.causes.goTo(ANSWERS.bottleneck.causes.indexOf(row)),
  };
}

const causeName = (row) => row.cause.replaceAll("_", " ");
const shareOfStep = (ps) => (PAGE.step_duration_ps ? (100 * ps) / PAGE.step_duration_ps : null);

// Returns the largest losses: findings, kernels of unknown cost (with their total time) and idle
// time.
function lossesOf({ findings: rows, kernels_of_unknown_cost: kernels, budget: classes }) {
  const gap = classes.find((row) => row.class === "idle");
  const found = [
    ...rows.map((row, i) => ({ row, cls: row.class, ps: row.lost_ps, what: whatOf(row), helps: row.what_helps, go: () => tables.findings.goTo(i) })),
    ...kernels.map((row, i) => ({
      row,
      cls: "kernel",
      ps: row.dur_ps,
      what: row.kernel,
      helps: "The cost of this kernel is unknown, so this is its total time; pass the cost with --kernel-cost.",
      go: () => tables["unknown-kernels"].goTo(i),
    })),
    { row: {}, cls: "idle", ps: gap?.dur_ps, what: null, helps: "See the gaps and their causes in section Idle.", go: () => goToClass("idle") },
  ];
  return found
    .filter((loss) => loss.ps && (shareOfStep(loss.ps) ?? 0) >= 0.5)
    .sort((a, b) => b.ps - a.ps);
}

function lossEntry(loss) {
  const { what, cls } = loss;
  const hasName = what !== null && what !== CLASSES[cls];
  const name = element("span", {}, classElement(cls), hasName ? ` ${shortened(readable(what), 32)}` : "");
  return { ...loss, name, pct: shareOfStep(loss.ps), cls: `c-${cls}` };
}

function stepFigures() {
  const found = ANSWERS.bottleneck;
  const light = found.speed_of_light;
  const { runtime } = ANSWERS.memory;
  const capacity = runtime?.capacity_bytes ? ` of ${asBytes(runtime.capacity_bytes)}` : "";
  const host = ANSWERS.comm.totals.host_ps;
  // Omit a lower bound of 0, which says nothing.
  const from = light.at_least_ps ? element("span", {}, figure("time", light.at_least_ps), " to ") : "at most ";
  const range = element("span", {}, from, figure("time", light.at_most_ps));
  return figures([
    ["step", figure("time", PAGE.step_duration_ps)],
    ["period", periodFigure(found), "mean time from the start of a step to the start of the next one"],
    ["the chip needs", range, "lower and upper bound on the time that the chip needs for the step"],
    ["MFU", mfuFigure(found), "share of the matrix units' peak that the step uses; the flops of some ops are unknown"],
    ["idle", idleFigure(found)],
    ["exposed communication", shareAndTime(ANSWERS.comm.totals.exposed_pct_of_step, ANSWERS.comm.totals.exposed_ps)],
    ...(host ? [["waits for the host", shareAndTime(ANSWERS.comm.totals.host_pct_of_step, host)]] : []),
    ["recomputed", shareAndTime(found.recompute_total_pct_of_step, found.recompute_total_dur_ps)],
    ["memory", element("span", {}, figure("bytes", ANSWERS.memory.peak_bytes, REASONS[DATA.parts.memory]), capacity), "the program's HBM peak"],
  ]);
}

const shareAndTime = (pct, ps) => (ps ? element("span", {}, shareFigure(pct, ps), ` (${asTime(ps)})`) : figure("time", 0));

// Returns the mean period, and the median if it differs by more than 5 %.
function periodFigure({ period_ps: mean, period_median_ps: median }) {
  const shown = figure("time", mean, "the capture contains no two consecutive steps");
  return 20 * Math.abs(mean - median) > median ? element("span", {}, shown, ", median ", figure("time", median)) : shown;
}

// Returns the MFU for the given model flops, or else its lower bound, without and with recomputation.
function mfuFigure({ mfu, mfu_at_least: least, hfu_at_least: recomputing }) {
  if (!isUnknown(mfu)) return figure("share", mfu);
  if (!least) return figure("share", null, PEAK_UNKNOWN);
  const differs = asShare(least) !== asShare(recomputing);
  return element("span", {}, "at least ", figure("share", least), ...(differs ? [", or ", figure("share", recomputing), " with recomputation"] : []));
}

// Judges idle time by the period, if steps follow each other: between steps and in the step, the
// larger time first.
function idleFigure({ period_ps: period, between_steps_ps: between, pauses }) {
  const { idle_pct_of_step: pct, idle_duration_ps: inStep } = PAGE.totals;
  if (!between) return shareAndTime(pct, inStep);
  const when = pauses.n < pauses.n_gaps ? pauses.when : "between steps";
  const parts = [[when, between], ["in the step", inStep]].sort((a, b) => b[1] - a[1]);
  return element("span", {}, ...parts.flatMap(([where, ps], i) => [i ? ", " : "", shareAndTime((100 * ps) / period, ps), ` ${where}`]));
}

// Shows warnings, and collapses the notes about where figures come from.
function noteLists() {
  const items = DATA.notes.map((note) => element("li", {}, readable(shortened(note, 4000))));
  const warnings = items.slice(0, DATA.n_warnings);
  const others = items.slice(DATA.n_warnings);
  const count = others.length === 1 ? "1 note" : `${others.length} notes`;
  return element(
    "div",
    { id: "notes" },
    warnings.length ? element("ul", { class: "warnings", "aria-label": "warnings" }, ...warnings) : "",
    others.length ? element("details", {}, element("summary", {}, `${count} about where the figures come from`), element("ul", {}, ...others)) : "",
  );
}
