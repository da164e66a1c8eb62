// Draws the header and the sections, and starts the page.

function head() {
  const name = PAGE.step_name === null ? "all ops" : PAGE.step_name || "(unnamed)";
  document.title = `${shortened(readable(PAGE.xplane_file), 60)}, step ${shortened(readable(name), 40)}`;
  byId("product").append(
    element("strong", {}, `compute-breakdown ${DATA.version}`),
    nameElement(PAGE.xplane_file, 60),
    element("span", {}, "captured ", captureDate()),
  );
  drawBlocks(byId("facts"), DATA.sections.header);
  byId("title").append(prose((ANSWERS.compare ?? ANSWERS.bottleneck).headline));
}

// In JSON, microseconds are us. A figure and its unit stay on one line.
const prose = (text) => readable(text).replace(/(\d) us\b/g, "$1 µs").replace(/(\d) (?=%|[pnµm]?s\b|([KMGT]i)?B\b)/g, "$1\u00a0");

function captureDate() {
  if (DATA.captured_at_ns === null) return figure("number", null, "the trace does not say when it was captured");
  const date = new Date(DATA.captured_at_ns / 1e6);
  // JavaScript has no dates beyond the year 275760.
  if (Number.isNaN(date.valueOf())) return figure("number", null, "the trace has an impossible date");
  return element("time", { datetime: date.toISOString() }, `${date.toISOString().slice(0, 16).replace("T", " ")} UTC`);
}

// Draws what stands above the causes. With a baseline, the page begins with the changes.
function lead(host) {
  const { headline, causes } = ANSWERS.bottleneck;
  host.append(element("h2", {}, ANSWERS.compare ? "After the change" : "Known causes"));
  if (ANSWERS.compare) host.append(element("p", { class: "after" }, prose(headline)));
  if (!causes.length) host.append(element("p", { class: "absent" }, "No known cause. The findings show which lines lose most."));
}

// Returns a line that opens to show the warnings, and the notes about where figures come from.
function notes() {
  const items = DATA.notes.map((note, i) => element("li", { class: i < DATA.n_warnings && "warning" }, prose(shortened(note, 4000))));
  const counts = [[DATA.n_warnings, "warning"], [items.length - DATA.n_warnings, "note"]].filter(([n]) => n);
  const says = counts.map(([n, what]) => `${n} ${what}${n === 1 ? "" : "s"}`).join(" and ");
  return items.length ? element("details", { id: "notes" }, element("summary", {}, says), element("ul", {}, ...items)) : "";
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
  const wholeOf = (side) => sumOf(partsOf(side));
  const longest = Math.max(...sides.map(([, side]) => wholeOf(side)), 1);
  for (const [name, side] of sides) {
    const bar = budgetBar(side);
    bar.style.width = `${(100 * wholeOf(side)) / longest}%`;
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
