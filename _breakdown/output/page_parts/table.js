// Draws sentences and tables, which are the same as in the text. In a table, click a heading to sort,
// type words to filter, click a row to see all its fields.

const TABLES = [];
const FIRST_ROWS = 12;
// As many as in the text: with sentences below them, more causes would hide what follows.
const FIRST_CAUSES = 3;

function drawBlocks(host, blocks) {
  for (const block of blocks) {
    if (block.says !== undefined) host.append(element("p", { class: "sentence" }, readable(block.says)));
    else host.append(block.title ? element("h3", {}, readable(block.title)) : "", new Table(block).node);
  }
}

// Returns the value at a path, such as `groups.3`.
const valueAt = (value, path) => path?.split(".").reduce((inner, key) => inner?.[key], value);

// Opens the row that shows this part of an answer.
function goTo(mode, path) {
  const table = TABLES.find((table) => table.mode === mode && table.paths.includes(path));
  table?.goTo(table.paths.indexOf(path));
}

class Table {
  constructor({ mode, path, title, columns, rows, below, code }) {
    Object.assign(this, { mode, path, columns, below, code, paths: rows });
    this.label = readable(title || columns.find(({ values }) => !values).heading);
    this.first = path === "causes" ? FIRST_CAUSES : FIRST_ROWS;
    this.most = rows.length < 1.5 * this.first ? Infinity : this.first;
    this.sorted = null;
    this.words = "";
    this.open = null;
    // The first column with times or sizes shows bars behind its figures.
    const barred = columns.find(({ kind }) => kind === "time" || kind === "bytes");
    if (barred) barred.largest = barred.values.slice(0, rows.length).reduce((a, b) => Math.max(a, Number(b)), 0);
    this.build();
    this.draw();
    const needed = columns.reduce((sum, column) => sum + widthOfColumn(column), 0);
    drawnByWidth(this.node, (width) => this.node.classList.toggle("cards", width < needed));
    TABLES.push(this);
  }

  build() {
    this.input = element("input", {
      type: "search",
      placeholder: "filter",
      title: "words, or heading=value",
      "aria-label": `filter ${this.label}`,
      oninput: () => this.filter(this.input.value),
      onkeydown: (event) => {
        if (event.key === "Escape") this.filter("");
      },
    });
    this.count = element("output", { class: "muted" });
    this.heads = this.columns.map((column) => {
      const button = element("button", { type: "button", onclick: () => this.sort(column) }, column.heading);
      return element("th", { role: "columnheader", class: lookOf(column) }, button);
    });
    this.body = element("tbody", { role: "rowgroup", onkeydown: (event) => this.onKey(event) });
    const sums = element("tfoot", { role: "rowgroup" });
    for (let i = this.paths.length; i < this.columns[0].texts.length; i++) {
      sums.append(element("tr", { role: "row" }, ...this.columns.map((column) => this.cell(column, i))));
    }
    this.more = element("button", { type: "button", class: "more", onclick: () => this.showAll() });
    // Rows that the answer omits come after those that the button shows.
    this.moreRow = this.wideRow("rest", this.more);
    sums.prepend(this.moreRow);
    // Rows open and close, so this is a tree. In a narrow window, rows are cards, so the roles must not
    // depend on the layout.
    this.node = element(
      "div",
      { class: "table", "data-rows": `${this.mode}.${this.path}` },
      // A few rows need no filter.
      element("div", { class: "toolbar", hidden: this.paths.length <= FIRST_ROWS }, this.input, this.count),
      element(
        "div",
        { class: "scroll" },
        element(
          "table",
          { role: "treegrid", "aria-label": this.label },
          element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...this.heads)),
          this.body,
          sums,
        ),
      ),
    );
  }

  // Returns the indices of the rows that pass the filter, in order.
  shown() {
    const words = this.words.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length) this.texts ??= this.paths.map((_, i) => this.textOf(i).toLowerCase());
    const places = this.paths.map((_, i) => i).filter((i) => words.every((word) => this.texts[i].includes(word)));
    if (this.sorted) {
      const { column, down } = this.sorted;
      const keys = column.values ?? column.texts.map((text) => (text === "?" || !text ? null : text));
      places.sort((a, b) => compared(keys[a], keys[b], down) || a - b);
    }
    return places;
  }

  // Returns the text in which a filter searches: all fields of the row, and `heading=text` of its cells.
  textOf(i) {
    const cells = this.columns.map(({ heading, texts }) => `${heading}=${texts[i]}`);
    return [...cells, ...textsIn(valueAt(ANSWERS[this.mode], this.paths[i]))].join("\n");
  }

  draw() {
    const places = this.shown();
    const drawn = places.slice(0, this.most);
    this.body.replaceChildren(...drawn.flatMap((i) => this.rowNodes(i)));
    if (this.open !== null && drawn.includes(this.open)) this.toggle(this.open, true);
    const first = this.body.querySelector("tr");
    if (first) first.tabIndex = 0;
    this.moreRow.hidden = places.length <= this.most;
    this.more.textContent = `show all ${places.length}`;
    const n = this.paths.length;
    this.count.textContent = places.length < n ? `${places.length} of ${n}` : `${n}`;
    this.heads.forEach((head, i) => {
      const isSorted = this.sorted?.column === this.columns[i];
      head.setAttribute("aria-sort", isSorted ? (this.sorted.down ? "descending" : "ascending") : "none");
    });
  }

  rowNodes(i) {
    const below = this.below[i];
    return [
      element(
        "tr",
        { role: "row", tabindex: "-1", "data-row": i, "aria-expanded": "false", onclick: () => this.onClick(i) },
        ...this.columns.map((column) => this.cell(column, i)),
      ),
      ...(below ? [this.wideRow("below", readable(below))] : []),
      ...(this.code[i] ? [this.wideRow("code", element("pre", {}, readableLines(this.code[i])))] : []),
    ];
  }

  wideRow(look, content) {
    return element("tr", { role: "row", class: look }, element("td", { role: "gridcell", colspan: this.columns.length }, content));
  }

  cell(column, i) {
    const { heading, kind, values, texts, largest } = column;
    const text = texts[i];
    const fields = { role: "gridcell", "data-label": heading, class: lookOf(column) };
    if (!text) return element("td", { ...fields, "data-label": null });
    let content;
    if (values) content = element("span", { title: values[i] ?? "unknown", "data-value": JSON.stringify(values[i]) }, text);
    else if (kind === "class" && this.paths.length > i) content = classElement(valueAt(ANSWERS[this.mode], this.paths[i]).class);
    else content = nameElement(text, 60, kind === "file" ? shortLine(text) : text);
    const made = element("td", fields, content);
    if (largest && i < this.paths.length) made.style.backgroundSize = `${Math.max(0, (100 * values[i]) / largest)}% 100%`;
    return made;
  }

  onClick(i) {
    // Ignore clicks that select text, for example to copy it.
    if (!String(getSelection())) this.toggle(i);
  }

  line(i) {
    return this.body.querySelector(`tr[data-row="${i}"]`);
  }

  toggle(i, open = this.open !== i) {
    this.body.querySelector("tr.detail")?.remove();
    this.body.querySelector("tr[aria-expanded=true]")?.setAttribute("aria-expanded", "false");
    this.open = open ? i : null;
    if (!open) return;
    const line = this.line(i);
    line.setAttribute("aria-expanded", "true");
    const detail = this.wideRow("detail", fieldsOf(valueAt(ANSWERS[this.mode], this.paths[i])));
    detail.setAttribute("aria-level", 2);
    line.after(detail);
  }

  sort(column) {
    // The first click sorts figures in descending and names in ascending order.
    const down = this.sorted?.column === column ? !this.sorted.down : Boolean(column.values);
    this.sorted = { column, down };
    this.draw();
  }

  filter(words) {
    this.words = words;
    if (this.input.value !== words) this.input.value = words;
    this.draw();
  }

  showAll() {
    this.most = Infinity;
    this.draw();
    this.line(this.shown()[this.first])?.focus();
  }

  // Opens a row and scrolls to it; called by a click on a mark.
  goTo(i) {
    if (!this.shown().includes(i)) this.filter("");
    if (!this.line(i)) this.showAll();
    this.toggle(i, true);
    this.focusRow(this.line(i));
    this.line(i).scrollIntoView({ block: "center" });
  }

  // Filters the rows and scrolls to the table.
  goToRows(words) {
    this.filter(words);
    this.node.scrollIntoView({ block: "start" });
    this.focusRow(this.body.querySelector("tr"));
  }

  focusRow(line) {
    if (!line) return;
    for (const other of this.body.querySelectorAll('tr[tabindex="0"]')) other.tabIndex = -1;
    line.tabIndex = 0;
    line.focus({ preventScroll: true });
  }

  onKey(event) {
    const lines = [...this.body.querySelectorAll("tr[data-row]")];
    const i = lines.indexOf(event.target);
    if (i < 0) return;
    const place = Number(lines[i].dataset.row);
    const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: lines.length - 1 }[event.key];
    if (lines[to]) this.focusRow(lines[to]), lines[to].scrollIntoView({ block: "nearest" });
    else if (event.key === "Enter" || event.key === " ") this.toggle(place);
    else if (event.key === "Escape") this.toggle(place, false);
    else if (to === undefined) return;
    event.preventDefault();
  }
}

const lookOf = ({ values, kind, largest }) => `${values ? "k-figure" : `k-text k-${kind}`}${largest ? " barred" : ""}`;

// Returns the width that a column needs, in pixels: texts break into lines, headings and figures do
// not.
function widthOfColumn({ kind, heading, values }) {
  const least = values ? 54 : kind === "file" ? 170 : kind === "class" ? 134 : 90;
  return Math.max(least, 1.1 * widthOf(heading) + 30);
}

// Yields the texts in a row of an answer.
function textsIn(value) {
  if (value === null || typeof value !== "object") return [readableLines(value)];
  return Object.values(value).flatMap(textsIn);
}

// Compares two values; unknown values come last in both directions.
function compared(a, b, down) {
  if (isUnknown(a) || isUnknown(b)) return isUnknown(a) - isUnknown(b);
  const [x, y] = down ? [b, a] : [a, b];
  return typeof x === "number" && typeof y === "number" ? x - y : x < y ? -1 : x > y ? 1 : 0;
}

// Shows all fields of a row, and the stack of its line.
function fieldsOf(row = {}) {
  const group = row.agg_key && ANSWERS.by_source.groups.find(({ agg_key: key }) => key === row.agg_key);
  const fields = group ? { ...row, source_stack: group.source_stack } : row;
  const items = Object.entries(fields).flatMap(([name, value]) => [
    element("dt", { "data-name": name }, readable(name).replace(/_(ps|bytes)$/, "").replace("pct", "%").replaceAll("_", " ")),
    element("dd", {}, valueNode(name, value)),
  ]);
  return element("dl", { class: "fields" }, ...items);
}

function valueNode(name, value) {
  if (typeof value === "number") return figure(kindOf(name), value);
  if (value === null) return element("span", { class: "unknown" }, "?");
  if (typeof value !== "object") {
    const text = shortened(readableLines(value), 4000);
    return element(text.includes("\n") ? "pre" : "bdi", {}, text);
  }
  if (Array.isArray(value)) {
    if (!value.length) return element("span", { class: "muted" }, "none");
    return element("ul", {}, ...value.map((item) => element("li", {}, valueNode(name, item))));
  }
  // In these maps, all figures are times; in other maps, the key tells the kind of figure.
  const inner = /^(phases|kinds|waits_for|cause)$/.test(name) ? () => "_ps" : (key) => key;
  const items = Object.entries(value).map(([key, held]) =>
    element("li", {}, element("span", { class: "muted" }, `${readable(shortened(key, 200))} `), valueNode(inner(key), held)),
  );
  return element("ul", {}, ...items);
}
