// Draws the first sections (head, cards, budget, findings), and defines parts that all sections share.

const column = (name, label, kind, more = {}) => ({ name, label, kind, ...more });
const lineColumn = { name: "line", label: "line", kind: "text", value: lineOf, node: lineElement };
const classColumn = { name: "class", label: "class", kind: "text", node: (row) => (row.class ? classElement(row.class) : "") };
const opColumn = column("hlo_op", "op", "text");
const nColumn = column("n_executions", "n", "count", { title: "executions" });
const totalColumn = column("total_dur_ps", "time", "time");
const shareColumn = column("pct_of_step", "% of step", "percent");
const COST_UNKNOWN = () => "unknown cost; pass --kernel-cost";
const PEAK_UNKNOWN = "the flops or the peak for the dtype are unknown";

function leftOut(mode, list) {
  const n = DATA.left_out[`${mode}.${list}`];
  return n ? `${n} more are left out of this page to keep it small.` : "";
}

function rest(n, what, time) {
  return n ? `${n} more ${what} (${asTime(time)} in all) are not on this page.` : "";
}

function addTable(where, id, rows, columns, options) {
  if (!rows.length) return;
  // A table needs no title if the section has no other content.
  const title = options.untitled ? "" : element("h3", {}, options.label);
  section(where, title, new Table(id, rows, columns, options).node);
}

// Returns the element of a list of labels and figures.
function figures(entries) {
  const list = element("dl", { class: "figures" });
  for (const [label, value, title] of entries) {
    list.append(element("div", { title }, element("dt", {}, label), element("dd", {}, value)));
  }
  return list;
}

function head() {
  const name = PAGE.step_name === null ? "all ops" : `step ${readable(PAGE.step_name || "(unnamed)")}`;
  byId("title").replaceChildren(nameElement(PAGE.xplane_file, 60));
  document.title = `${shortened(readable(PAGE.xplane_file), 60)}, ${shortened(name, 40)}`;
  const clocks = { device: "the device's", trace: "the trace's", mixed: "mixed" };
  const facts = [
    ["device", nameElement(`${PAGE.device}${PAGE.device_type ? `, ${PAGE.device_type}` : ""}`)],
    ["step", nameElement(PAGE.step_name === null ? name : `${name} (index ${PAGE.step_id})`, 60)],
    ["duration", figure("time", PAGE.step_duration_ps)],
    ["clock", clocks[PAGE.clock] ?? readable(PAGE.clock)],
    ["program", PAGE.program.name === null ? figure("number", null, "the trace names no program") : nameElement(PAGE.program.name, 48)],
    ["from", nameElement(PAGE.profile_dir, 60)],
  ];
  byId("facts").append(...facts.map(([term, value]) => element("div", {}, element("dt", {}, term), element("dd", {}, value))));
  const notes = byId("notes");
  notes.hidden = !DATA.notes.length;
  notes.firstElementChild.append(`${DATA.notes.length} notes`);
  notes.lastElementChild.append(...DATA.notes.map((note) => element("li", {}, readable(shortened(note, 4000)))));
}

function card(label, value, says, title) {
  return element("div", { class: "card", title }, element("dt", {}, label), element("dd", {}, value), element("p", {}, says));
}

function cards() {
  const found = ANSWERS.bottleneck;
  const { totals } = PAGE;
  const light = found.speed_of_light;
  const bounds = element("span", {}, figure("percent", light.pct_at_least), " – ", figure("percent", light.pct_at_most));
  const list = [
    card("step", figure("time", PAGE.step_duration_ps), `${totals.n_events_total} events of ops`),
    card("bottleneck", found.bottleneck === "at_roof" ? "at its roof" : classElement(found.bottleneck), "the most time to win"),
    card("speed of light", bounds, "of the step is what the chip needs: lower and upper bound"),
    card("math in use", figure("share", found.hfu_at_least, PEAK_UNKNOWN), "of the matrix units, at least", "hfu_at_least"),
    card("idle", figure("percent", totals.idle_pct_of_step), asTime(totals.idle_duration_ps)),
    card("exposed communication", figure("percent", ANSWERS.comm.totals.exposed_pct_of_step), asTime(ANSWERS.comm.totals.exposed_ps)),
    card("recomputed", figure("percent", found.recompute_total_pct_of_step), asTime(found.recompute_total_dur_ps)),
    card(
      "memory at the peak",
      figure("bytes", ANSWERS.memory.peak_bytes, REASONS[DATA.parts.memory]),
      ANSWERS.memory.runtime?.capacity_bytes ? `of ${asBytes(ANSWERS.memory.runtime.capacity_bytes)}` : (REASONS[DATA.parts.memory] ?? "by the program"),
    ),
  ];
  byId("cards").append(element("dl", {}, ...list));
}

function budget() {
  const rows = ANSWERS.bottleneck.budget;
  const legend = rows
    .filter((row) => row.dur_ps)
    .map((row) =>
      element(
        "li",
        { class: "budget-row" },
        element("button", { type: "button", onclick: () => goToClass(row.class) }, classElement(row.class)),
        element("span", {}, figure("time", row.dur_ps)),
        element("span", {}, figure("percent", row.pct_of_step)),
        row.lost_ps ? element("span", { class: "muted" }, "lost ", figure("time", row.lost_ps)) : "",
      ),
    );
  section("budget", budgetBar(rows), element("ul", { class: "legend" }, ...legend), element("h3", {}, "Moment by moment, and below it the longest gaps"));
  drawStrip(byId("budget"));
}

function findings() {
  const { findings: rows, tail } = ANSWERS.bottleneck;
  addTable(
    "findings",
    "findings",
    rows,
    [
      column("rank", "#", "number"),
      classColumn,
      column("what", "what", "text", { value: whatOf, most: 30 }),
      lineColumn,
      column("dur_ps", "time", "time"),
      column("lost_ps", "lost", "time", { why: COST_UNKNOWN }),
      column("hideable_ps", "hideable", "time", { none: "math can't be hidden by math" }),
      shareColumn,
      nColumn,
    ],
    { label: "findings", untitled: true, classes: true, rest: rest(tail.n_findings_omitted, "findings", tail.dur_ps) || leftOut("bottleneck", "findings") },
  );
  addTable(
    "findings",
    "unknown-kernels",
    ANSWERS.bottleneck.kernels_of_unknown_cost,
    [
      column("kernel", "kernel", "text", { most: 40 }),
      lineColumn,
      column("dur_ps", "time", "time"),
      shareColumn,
      nColumn,
      column("vmem_used_bytes", "VMEM used", "bytes", { why: () => "the program is not in the capture" }),
    ],
    { label: "kernels of unknown cost: nobody knows what they lose", rest: rest(tail.n_kernels_omitted, "kernels", tail.kernels_dur_ps) },
  );
}

// Returns a word for the work of a finding.
function whatOf(row) {
  const waits = Object.entries(row.waits_for ?? {}).sort((a, b) => b[1] - a[1]);
  return row.kernel ?? waits[0]?.[0] ?? row.top_signature?.replace(/ \[.*/, "") ?? null;
}
