// Draws the budget and the findings, and defines elements that several sections share.

const column = (name, label, kind, more = {}) => ({ name, label, kind, ...more });
const lineColumn = { name: "line", label: "line", kind: "text", value: lineOf, node: lineElement };
const classColumn = { name: "class", label: "class", kind: "text", node: (row) => (row.class ? classElement(row.class) : "") };
const opColumn = column("hlo_op", "op", "text");
const nColumn = column("n_executions", "n", "count", { title: "executions" });
const totalColumn = column("total_dur_ps", "time", "time");
const shareColumn = column("pct_of_step", "% of step", "percent", { node: (row) => shareFigure(row.pct_of_step, row.total_dur_ps ?? row.dur_ps) });
const rankColumn = column("rank", "#", "number");
const COST_UNKNOWN = () => "unknown cost; pass --kernel-cost";
const lostColumn = column("lost_ps", "lost", "time", { why: COST_UNKNOWN, bar: true });
const hideableColumn = column("hideable_ps", "hideable", "time", { none: "only communication and data movement can be hidden by math" });
const PEAK_UNKNOWN = "the flops or the dtype's peak are unknown";

function leftOut(mode, list) {
  const n = DATA.left_out[`${mode}.${list}`];
  return n ? `${n} more rows are omitted to keep this page small.` : "";
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

// Returns an element that lists labels with their figures.
function figures(entries) {
  const list = element("dl", { class: "figures" });
  for (const [label, value, title] of entries) {
    list.append(element("div", { title }, element("dt", {}, label), element("dd", {}, value)));
  }
  return list;
}

function budget() {
  const rows = ANSWERS.bottleneck.budget;
  // Hide overlap of a few picoseconds, which comes from rounding.
  const shown = rows.filter((row) => row.dur_ps && (row.class !== "overlap" || shareOfStep(Math.abs(row.dur_ps)) >= 0.05));
  section("budget", budgetBar(DATA));
  const why = (row) => ({ idle: "no op runs", overlap: "a correction for time that is counted twice" })[row.class] ?? "the cost of these ops is unknown";
  addTable(
    "budget",
    "budget",
    shown,
    [
      classColumn,
      column("dur_ps", "time", "time"),
      shareColumn,
      column("at_roof_ps", "at roof", "time", { why, title: "time that the chip needs" }),
      // All idle time is lost.
      column("lost_ps", "lost", "time", { why, value: (row) => (row.class === "idle" ? row.dur_ps : row.lost_ps) }),
      hideableColumn,
    ],
    { label: "classes", untitled: true },
  );
  drawTimelines(byId("budget"), DATA);
  alsoBefore("budget", (host) => drawTimelines(host, BEFORE));
}

function drawTimelines(host, side) {
  drawPeriod(host, side);
  host.append(element("h3", {}, "The step moment by moment, with the longest idle gaps below"));
  drawStrip(host, side);
}

function findings() {
  const { causes, findings: rows, tail } = ANSWERS.bottleneck;
  addTable(
    "findings",
    "causes",
    causes,
    [
      rankColumn,
      lineColumn,
      column("gain_ps", "gain", "time", { bar: true }),
      column("gain_pct_of_step", "% of step", "percent", { title: "percentage of the step; for a pause between steps, of the period" }),
      column("cause", "cause", "text", { value: causeName }),
      column("says", "what was seen", "text", { most: 600, wraps: true }),
    ],
    { label: "causes" },
  );
  addTable(
    "findings",
    "findings",
    rows,
    [
      rankColumn,
      lineColumn,
      lostColumn,
      column("dur_ps", "time", "time"),
      classColumn,
      column("what", "what", "text", { value: whatOf, most: 30 }),
      hideableColumn,
      shareColumn,
      nColumn,
    ],
    { label: "lines that lose time", classes: true, rest: rest(tail.n_findings_omitted, "findings", tail.dur_ps) || leftOut("bottleneck", "findings") },
  );
  addTable(
    "findings",
    "unknown-kernels",
    ANSWERS.bottleneck.kernels_of_unknown_cost,
    [
      lineColumn,
      column("dur_ps", "time", "time", { bar: true }),
      column("kernel", "kernel", "text", { most: 40 }),
      shareColumn,
      nColumn,
      column("vmem_used_bytes", "VMEM used", "bytes", { why: () => "the program is not in the capture" }),
    ],
    { label: "kernels of unknown cost, so their loss is unknown, too", rest: rest(tail.n_kernels_omitted, "kernels", tail.kernels_dur_ps) },
  );
}

// Names the work of a finding: its kernel, what it waits for, or its op.
function whatOf(row) {
  const waits = Object.entries(row.waits_for ?? {}).sort((a, b) => b[1] - a[1]);
  return row.kernel ?? waits[0]?.[0] ?? row.top_signature?.replace(/ \[.*/, "") ?? null;
}

// Collapses a section whose time is less than 0.5 % of the step.
function foldIfSmall(id, ps) {
  const share = shareOfStep(ps);
  if (share === null || share >= 0.5) return;
  const host = byId(id);
  const [title, ...others] = host.children;
  const says = ps ? `${asTime(ps)}, less than 0.5 % of the step` : "none";
  host.append(element("details", { class: "folded" }, element("summary", {}, title, element("span", { class: "muted" }, says)), ...others));
}

function unfold(node) {
  for (const folded of node.querySelectorAll("details.folded")) folded.open = true;
  const around = node.closest("details.folded");
  if (around) around.open = true;
}

// Highlights the visible section in the navigation. A link to a collapsed section expands it.
function followNavigation() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  for (const [id, link] of links) link.addEventListener("click", () => unfold(byId(id)));
  const inView = new Set();
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) inView.add(target.id);
        else inView.delete(target.id);
      }
      const current = [...links.keys()].find((id) => inView.has(id));
      for (const [id, link] of links) {
        if (id === current) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    },
    { rootMargin: "-96px 0px -60% 0px" },
  );
  for (const id of links.keys()) observer.observe(byId(id));
}
