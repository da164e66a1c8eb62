// Draws the header, the summary and the sections, and starts the page.

const MOST_OF_LEAD = 3;

function head() {
  const name = PAGE.step_name === null ? "all ops" : PAGE.step_name || "(unnamed)";
  document.title = `${shortened(readable(PAGE.xplane_file), 60)}, step ${shortened(readable(name), 40)}`;
  byId("product").append(
    element("strong", {}, `compute-breakdown ${DATA.version}`),
    nameElement(PAGE.xplane_file, 60),
    element("span", {}, "captured ", captureDate()),
  );
  drawBlocks(byId("facts"), DATA.sections.header);
  byId("title").append(readable((ANSWERS.compare ?? ANSWERS.bottleneck).headline));
}

function captureDate() {
  if (DATA.captured_at_ns === null) return figure("number", null, "the trace does not say when it was captured");
  const date = new Date(DATA.captured_at_ns / 1e6);
  // JavaScript has no dates beyond the year 275760.
  if (Number.isNaN(date.valueOf())) return figure("number", null, "the trace has an impossible date");
  return element("time", { datetime: date.toISOString() }, `${date.toISOString().slice(0, 16).replace("T", " ")} UTC`);
}

// ---------------------------------------------------------------------------------------------
// Draws the summary: the headline, the causes and lines that cost the most, and the notes.

function lead(host) {
  const { headline, causes, lines } = ANSWERS.bottleneck;
  if (ANSWERS.compare) host.append(element("h2", {}, "After the change"), element("p", { class: "after" }, readable(headline)));
  const told = new Set();
  const items = causes.slice(0, MOST_OF_LEAD).map((row, i) => {
    // Show advice that several causes share only once.
    const helps = told.has(row.what_helps) ? null : row.what_helps;
    told.add(row.what_helps);
    const ofPeriod = row.evidence.pauses ? " of the period" : "";
    const name = `${row.confidence === "likely" ? "probably " : ""}${row.cause.replaceAll("_", " ")}`;
    return item(row, name, row.gain_ps, row.gain_pct_of_step, ofPeriod, "cause", helps, `causes.${i}`);
  });
  const losses = lines.filter((row) => row.lost_ps).slice(0, MOST_OF_LEAD).map((row) => {
    const name = element("span", {}, classElement(row.class), ` ${shortened(readable(row.mostly ?? "").replace(/ \[.*/, ""), 32)}`);
    const pct = (100 * row.lost_ps) / PAGE.step_duration_ps;
    return item(row, name, row.lost_ps, pct, "", `c-${row.class}`, null, `lines.${lines.indexOf(row)}`);
  });
  host.append(element("div", { class: "columns-of-lead" }, itemList("Change first", items), itemList("Lines that lose most", losses)));
}

function itemList(title, items) {
  return items.length ? element("div", { class: "items" }, element("h2", {}, title), element("ol", {}, ...items)) : null;
}

// Returns an entry of the summary. The bar's length is the share of the step.
function item(row, name, ps, pct, ofPeriod, look, helps, path) {
  const line = lineOf(row);
  const bar = element("div", { class: look, "data-value": ps });
  bar.style.width = `${Math.min(100, pct ?? 0)}%`;
  const share = element("strong", {}, asPercent(pct), ofPeriod);
  return element(
    "li",
    {},
    element(
      "div",
      { class: "item-head" },
      element("button", { type: "button", onclick: () => goTo("bottleneck", path) }, name),
      line === null ? null : nameElement(line, 44, shortLine(line)),
      element("span", { class: "item-time" }, figure("time", ps), share),
    ),
    element("div", { class: "item-bar" }, bar),
    helps ? element("p", {}, readable(helps)) : null,
  );
}

// Shows warnings, and collapses the notes about where figures come from.
function notes() {
  const items = DATA.notes.map((note) => element("li", {}, readable(shortened(note, 4000))));
  const warnings = items.slice(0, DATA.n_warnings);
  const others = items.slice(DATA.n_warnings);
  const count = others.length === 1 ? "1 note" : `${others.length} notes`;
  return element(
    "div",
    { id: "notes" },
    warnings.length ? element("ul", { class: "warnings", "aria-label": "warnings" }, ...warnings) : null,
    others.length ? element("details", {}, element("summary", {}, `${count} about where the figures come from`), element("ul", {}, ...others)) : null,
  );
}

// ---------------------------------------------------------------------------------------------
// Draws the sections: first the chart, then the sentences and tables.

const CHARTS = {
  changes: barsOfSides,
  lead,
  budget: (host) => host.append(budgetBar(DATA)),
  steps: (host) => host.append(ANSWERS.summary.steps.length ? stepColumns(ANSWERS.summary.steps) : "The trace marks no steps."),
};
// Charts that a comparison draws for both sides.
const CHARTS_OF_SIDES = {
  timeline: drawTimeline,
  flame: (host, side) => new Flame(host, side),
  roofline: drawRoofline,
};

function drawSection(host) {
  const { id } = host;
  CHARTS[id]?.(host);
  const chart = CHARTS_OF_SIDES[id];
  chart?.(host, DATA);
  if (chart && ANSWERS.compare) {
    host.append(element("h3", {}, "Before the change"));
    const before = element("div");
    host.append(before);
    if (BEFORE) chart(before, BEFORE);
    else before.append(element("p", { class: "absent" }, "? The baseline is a record, which has no ops. Pass the capture instead to see its charts and causes."));
  }
  drawBlocks(host, DATA.sections[id] ?? []);
  if (id === "lead") host.append(notes());
}

// Draws both sides' budgets on the same scale.
function barsOfSides(host) {
  const sides = BEFORE ? [["before", BEFORE], ["after", DATA]] : [];
  const longest = Math.max(...sides.map(([, side]) => side.page.step_duration_ps), 1);
  for (const [name, side] of sides) {
    const bar = budgetBar(side);
    bar.style.width = `${(100 * side.page.step_duration_ps) / longest}%`;
    host.append(element("h3", {}, `${name}: step ${readable(side.page.step_name ?? "(all ops)")}, `, figure("time", side.page.step_duration_ps)), bar);
  }
}

// Highlights the visible section in the navigation.
function followNavigation() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const inView = new Set();
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) inView[isIntersecting ? "add" : "delete"](target.id);
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

if (!ANSWERS.compare) document.querySelectorAll("#changes, nav a[href='#changes']").forEach((node) => node.remove());
head();
document.querySelectorAll("main section").forEach(drawSection);
const absent = Object.entries(DATA.parts).filter(([, status]) => status !== "ok");
if (absent.length) byId("parts").append(`No answer: ${absent.map(([mode, status]) => `${mode}: ${status}`).join(", ")}.`);
drawAll();
drawWhenWidthsChange();
followNavigation();
document.body.dataset.ready = "true";
