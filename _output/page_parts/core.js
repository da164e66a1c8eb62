// Reads the data, creates elements and formats figures. Names in a trace can be hostile, so all text
// enters the page as text, never as HTML.

const DATA = JSON.parse(document.getElementById("data").textContent);
const ANSWERS = DATA.answers;
const PAGE = DATA.page;
// The data of the baseline's step, with the same fields as DATA.
const BEFORE = DATA.before;

const CLASSES = {
  collective: "collective",
  host: "host",
  data_movement: "data movement",
  compute_bound: "compute bound",
  memory_bound: "memory bound",
  kernel: "kernel",
  unjudged: "unjudged",
  other: "other",
  idle: "idle",
  overlap: "overlap",
};
const REASONS = {
  no_program: "the capture has no program",
  no_buffer_assignment: "the program in the capture has no buffer assignment",
};

// Matches invisible characters: control characters, and characters that change the writing direction.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]/gu;

function readable(text) {
  return String(text).replace(UNSEEN, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);
}

// Escapes a multi-line text, such as a stack, but keeps its line feeds.
function readableLines(text) {
  return String(text).split("\n").map(readable).join("\n");
}

function element(tag, fields = {}, ...children) {
  return filled(document.createElement(tag), fields, children);
}

function svg(tag, fields = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), fields, children);
}

function filled(node, fields, children) {
  for (const [name, value] of Object.entries(fields)) {
    if (isUnknown(value) || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => !isUnknown(child)));
  return node;
}

const byId = (id) => document.getElementById(id);

// ---------------------------------------------------------------------------------------------
// Formats figures. A figure is shown rounded; the title and data-value of its element are exact.

const TIMES = [["ps", 1], ["ns", 1e3], ["µs", 1e6], ["ms", 1e9], ["s", 1e12]];
const BYTES = [["B", 1], ["KiB", 2 ** 10], ["MiB", 2 ** 20], ["GiB", 2 ** 30], ["TiB", 2 ** 40]];
const COUNTS = [["", 1], ["k", 1e3], ["M", 1e6], ["G", 1e9], ["T", 1e12], ["P", 1e15]];

function unitOf(units, number) {
  const size = Math.abs(number);
  return units.findLast(([, unit]) => size >= unit) ?? units[0];
}

// Returns the number of decimals that gives the largest figure in a column four digits.
const decimalsFor = (largest) => Math.max(0, 4 - String(Math.floor(Math.abs(largest))).length);
const decimalsOf = ([, unit], largest) => (unit === 1 ? 0 : decimalsFor(largest / unit));

function inUnit(units, number, unit = unitOf(units, number), largest = number) {
  return (number / unit[1]).toFixed(decimalsOf(unit, largest));
}

function scaled(units, number) {
  if (isUnknown(number)) return "?";
  if (Number(number) === 0) return "none";
  const unit = unitOf(units, number);
  return `${inUnit(units, Number(number), unit)}${unit[0] && ` ${unit[0]}`}`;
}

const asTime = (ps) => scaled(TIMES, ps);
const asBytes = (bytes) => scaled(BYTES, bytes);
const asCount = (n) => (n && n < 1e4 ? String(n) : scaled(COUNTS, n));
const asPercent = (pct) => (isUnknown(pct) ? "?" : pct > 0 && pct < 0.05 ? "<0.1 %" : `${pct.toFixed(1)} %`);
const asShare = (fraction) => asPercent(fraction === null ? null : 100 * fraction);

const grouped = (number) =>
  typeof number === "number" && Number.isInteger(number)
    ? String(number).replace(/\B(?=(\d{3})+$)/g, " ")
    : String(number);

// Maps each kind of figure to its formatter and the unit of its exact value.
const KINDS = {
  time: [asTime, "ps"],
  bytes: [asBytes, "bytes"],
  count: [asCount, ""],
  percent: [asPercent, "%"],
  share: [asShare, "of 1"],
  delta: [(ps) => signed(asTime(ps), ps), "ps"],
  change: [(pct) => `${signed(pct.toFixed(1), pct)} %`, "%"],
  number: [(n) => (isUnknown(n) ? "?" : String(n)), ""],
};
// Maps kinds of figures to the units in which they can be shown.
const UNITS = { time: TIMES, delta: TIMES, bytes: BYTES, count: COUNTS };

// Prefixes a positive difference with +, and removes the sign of a difference that was rounded to
// 0.
const signed = (text, number) => (/[1-9]/.test(text) ? (number > 0 ? `+${text}` : text) : text.replace("-", ""));

const isUnknown = (value) => value === null || value === undefined;

// Returns an element that shows a figure; an unknown figure is a `?` with the reason as its title.
function figure(kind, value, why = "unknown", shown = null) {
  if (isUnknown(value)) {
    return element("span", { class: "unknown", title: why, "data-value": "null" }, "?");
  }
  const [form, unit] = KINDS[kind];
  const exact = `${grouped(value)} ${unit}`.trim();
  return element("span", { class: "figure", title: exact, "data-value": value }, shown ?? form(value));
}

// Returns an element that shows a percentage. Answers round small percentages to 0, so show <0.1 %
// if the time is not 0.
const shareFigure = (pct, ps) => figure("percent", pct, "unknown", pct === 0 && ps ? "<0.1 %" : null);

// Infers the kind of a field from its name.
function kindOf(name) {
  if (/^delta_ps$/.test(name)) return "delta";
  if (/^delta_pct/.test(name)) return "change";
  if (/_ps(_|$)/.test(name)) return "time";
  if (/bytes/.test(name) && !/^pct/.test(name)) return "bytes";
  if (/pct/.test(name)) return "percent";
  if (/(^|_)(mfu|hfu|util)|fragmentation$/.test(name)) return "share";
  return "number";
}

// ---------------------------------------------------------------------------------------------
// Shortens names.

// Keeps the last two parts of a path; the element's title shows the full path.
function shortLine(line) {
  const parts = line.split("/");
  return parts.length > 2 ? `…/${parts.slice(-2).join("/")}` : line;
}

// Keeps only the file name, because boxes have little room.
const withoutFolder = (line) => (/\/[^/]*:\d+$/.test(line) ? line.slice(line.lastIndexOf("/") + 1) : line);

function shortened(text, most) {
  if (text.length <= most) return text;
  const end = Math.floor(most / 2);
  return `${text.slice(0, most - end - 1)}…${text.slice(-end)}`;
}

function nameElement(text, most = 60, shown = text) {
  const title = shortened(readableLines(text), 2000);
  return element("bdi", { title }, shortened(readable(shown), most));
}

// Returns a row's source line, preferably the one in the user's own code.
const lineOf = (row) => row.source_user ?? row.source_inner ?? null;

function lineElement(row) {
  const line = lineOf(row);
  if (line !== null) {
    const doubtful = row.source_is === "doubtful" ? " (?)" : "";
    // If one line has most of the step's time, the scope says more.
    const scope = PAGE?.totals?.common_line && row.scope ? `${row.scope}, ` : "";
    return nameElement(scope + line, 48, scope + shortLine(line) + doubtful);
  }
  if (row.agg_key) return nameElement(row.agg_key, 48);
  return element("span", { class: "unknown", title: "the trace has no line" }, "?");
}

// Returns the class with the most time in a map from class to time.
function mainClass(times) {
  const ranked = Object.entries(times).sort((a, b) => b[1] - a[1]);
  return ranked.length ? ranked[0][0] : "other";
}

// Returns true if no class takes three quarters of the time, so a single colour would mislead.
function isMixed(times) {
  const all = Object.values(times);
  return 4 * Math.max(...all, 0) < 3 * all.reduce((a, b) => a + b, 0);
}

// Measures texts in the font of chart labels.
const pen = document.createElement("canvas").getContext("2d");
pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
const widthOf = (text) => pen.measureText(text).width;

// Returns the first text that fits into a width, or an empty string.
const fitting = (width, ...texts) => texts.find((text) => widthOf(text) <= width) ?? "";

function swatch(name) {
  return element("span", { class: `swatch c-${name}` });
}

function classElement(name) {
  return element("span", { class: "class" }, swatch(name), CLASSES[name] ?? name);
}

function section(id, ...children) {
  byId(id).append(...children);
}

// Returns true if a mode has an answer; otherwise writes the reason into the mode's section.
function hasAnswer(mode, id) {
  const status = DATA.parts[mode];
  if (status === "ok") return true;
  const why = REASONS[status] ? `: ${REASONS[status]}` : "";
  section(id, element("p", { class: "absent" }, `No answer (${status})${why}.`));
  return false;
}
