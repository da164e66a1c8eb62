// Reads the data, creates elements and formats figures. Names in a trace can be hostile, so all text
// enters the page as text, never as HTML.

const DATA = JSON.parse(document.getElementById("data").textContent);
const ANSWERS = DATA.answers;
const PAGE = DATA.page;
// The data of the baseline's step, with the same fields as DATA.
const BEFORE = DATA.before;

const CLASSES = {
  collective: "communication",
  host: "transfers between host and device",
  data_movement: "copies and layout changes",
  compute_bound: "compute-bound math",
  memory_bound: "memory-bound math",
  kernel: "kernels of unknown cost",
  unjudged: "math of unknown cost",
  other: "ops of unknown kind",
  idle: "idle",
  overlap: "overlap of ops",
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

const element = (tag, fields = {}, ...children) => filled(document.createElement(tag), fields, children);
const svg = (tag, fields = {}, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", tag), fields, children);

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
const isUnknown = (value) => value === null || value === undefined;

// ---------------------------------------------------------------------------------------------
// Formats figures. A figure is shown rounded; the title and data-value of its element are exact.

const TIMES = [["ps", 1], ["ns", 1e3], ["µs", 1e6], ["ms", 1e9], ["s", 1e12]];
const BYTES = [["B", 1], ["KiB", 2 ** 10], ["MiB", 2 ** 20], ["GiB", 2 ** 30], ["TiB", 2 ** 40]];

const unitOf = (units, number) => units.findLast(([, size]) => Math.abs(number) >= size) ?? units[0];

// Formats a number with the decimals that give the largest number four digits.
function inUnit(number, [, size], largest = number) {
  const nDigits = String(Math.floor(Math.abs(largest / size))).length;
  const nDecimals = size === 1 ? 0 : Math.max(0, 4 - nDigits);
  // Round half up, as the tables do. toFixed rounds the nearest float, which can be less than half.
  const scale = 10 ** nDecimals;
  return ((Math.sign(number) * Math.round((Math.abs(number) * scale) / size)) / scale).toFixed(nDecimals);
}

function scaled(units, number) {
  if (isUnknown(number)) return "?";
  const unit = unitOf(units, number);
  return Number(number) === 0 ? "0" : `${inUnit(Number(number), unit)} ${unit[0]}`;
}

const asTime = (ps) => scaled(TIMES, ps);
const asPercent = (pct) => (isUnknown(pct) ? "?" : pct > 0 && pct < 0.05 ? "<0.1 %" : `${pct.toFixed(1)} %`);
const asShare = (fraction) => asPercent(isUnknown(fraction) ? null : 100 * fraction);

// Maps each kind of figure to its formatter and the unit of its exact value.
const KINDS = {
  time: [asTime, "ps"],
  bytes: [(bytes) => scaled(BYTES, bytes), "bytes"],
  percent: [asPercent, "%"],
  share: [asShare, "of 1"],
  number: [String, ""],
};

// Infers the kind of a field from its name.
function kindOf(name) {
  if (/_ps(_|$)/.test(name)) return "time";
  if (/pct/.test(name)) return "percent";
  if (/bytes/.test(name)) return "bytes";
  if (/(^|_)(mfu|hfu|util)|fragmentation$/.test(name)) return "share";
  return "number";
}

// Returns an element that shows a figure; an unknown figure is a `?` with the reason as its title.
function figure(kind, value, why = "unknown") {
  if (isUnknown(value)) return element("span", { class: "unknown", title: why, "data-value": "null" }, "?");
  const [form, unit] = KINDS[kind];
  return element("span", { class: "figure", title: `${value} ${unit}`.trim(), "data-value": value }, form(value));
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

// Measures texts in the font of chart labels.
const pen = document.createElement("canvas").getContext("2d");
pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
const widthOf = (text) => pen.measureText(text).width;

// Returns the first text that fits into a width, or an empty string.
const fitting = (width, ...texts) => texts.find((text) => widthOf(text) <= width) ?? "";

function classElement(name) {
  return element("span", { class: "class" }, element("span", { class: `swatch c-${name}` }), CLASSES[name]);
}
