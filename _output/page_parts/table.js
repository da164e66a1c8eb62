// Draws tables: click a heading to sort, type a text or select a class to filter, click a row to
// see all its fields.

const tables = {};
const FIRST_ROWS = 12;

class Table {
  // A column has `name`, `label` and `kind` (a key of KINDS, or "text"). Optional: `value(row)`
  // returns the value if it is not row[name]; `node(row)` draws the cell; `why(row)` returns the
  // reason why a figure is unknown; `none` is the reason why a figure is missing; `bar` draws a bar
  // behind the figure; `wraps` lets a text take several lines.
  constructor(id, rows, columns, { label, classes = false, rest = null } = {}) {
    this.id = id;
    this.rows = rows;
    this.columns = columns.map((column) => ({
      kind: "text",
      value: (row) => row[column.name],
      ...column,
    }));
    this.label = label;
    // Show all rows if only a few would be hidden.
    this.most = rows.length < 1.5 * FIRST_ROWS ? Infinity : FIRST_ROWS;
    this.sorted = null;
    this.words = "";
    this.class = "";
    this.open = null;
    this.texts = null;
    this.setUnits();
    this.node = element("div", { class: "table", id: `${id}-table` });
    this.build(classes, rest);
    this.draw();
    const needed = this.columns.reduce((sum, column) => sum + widthOfColumn(column), 0);
    drawnByWidth(this.node, (width) => this.node.classList.toggle("cards", width < needed));
    tables[id] = this;
  }

  // All figures in a column share one unit, which the heading shows, so they can be compared at a
  // glance. The largest figure has four digits.
  setUnits() {
    for (const column of this.columns) {
      const numbers = this.rows.map((row) => Number(column.value(row) ?? 0));
      column.largest = numbers.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
      const units = UNITS[column.kind];
      if (column.kind === "number" && numbers.some((number) => !Number.isInteger(number))) {
        const decimals = decimalsFor(column.largest);
        column.form = (number) => (isUnknown(number) ? "?" : notNothing(number.toFixed(decimals), number));
      } else if (units && (column.kind !== "count" || column.largest >= 1e4)) {
        const unit = unitOf(units, column.largest);
        column.unit = column.largest ? unit[0] : "";
        column.form = (number) =>
          Number(number) === 0 ? "none" : (column.kind === "delta" ? signed : notNothing)(inUnit(units, Number(number), unit, column.largest), number);
      }
    }
  }

  build(classes, rest) {
    const filter = element("input", {
      type: "search",
      placeholder: "filter",
      "aria-label": `filter ${this.label}`,
      oninput: () => this.filter(filter.value, this.class),
      onkeydown: (event) => {
        if (event.key === "Escape") this.filter("", "");
      },
    });
    this.input = filter;
    this.count = element("output", { class: "muted" });
    // A few rows need no filter.
    const bar = element("div", { class: "toolbar", hidden: this.rows.length <= FIRST_ROWS }, filter);
    if (classes) {
      const present = Object.keys(CLASSES).filter((name) => this.rows.some((row) => row.class === name));
      this.select = element(
        "select",
        { "aria-label": `class of ${this.label}`, onchange: () => this.filter(this.words, this.select.value) },
        element("option", { value: "" }, "all classes"),
        ...present.map((name) => element("option", { value: name }, CLASSES[name])),
      );
      bar.append(this.select);
    }
    bar.append(this.count);
    this.heads = this.columns.map((column) => {
      const label = column.unit ? `${column.label} ${column.unit}` : column.label;
      const button = element("button", { type: "button", onclick: () => this.sort(column) }, label);
      column.heading = label;
      return element("th", { role: "columnheader", class: `k-${column.kind}`, title: column.title }, button);
    });
    this.body = element("tbody", { role: "rowgroup", onkeydown: (event) => this.onKey(event) });
    this.more = element("button", { type: "button", class: "more", onclick: () => this.showAll() });
    this.node.append(
      bar,
      element(
        "div",
        { class: "scroll" },
        element(
          "table",
          // Rows open and close, so this is a tree. In a narrow window, rows are cards, so the roles
          // must not depend on the layout.
          { role: "treegrid", "aria-label": this.label },
          element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...this.heads)),
          this.body,
        ),
      ),
      element("p", { class: "below" }, this.more, rest ? element("span", { class: "muted" }, rest) : null),
    );
  }

  shown() {
    const words = this.words.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length) this.texts ??= this.rows.map((row) => textOf(row).toLowerCase());
    const places = this.rows.map((_, i) => i).filter(
      (i) =>
        (!this.class || this.rows[i].class === this.class) &&
        words.every((word) => this.texts[i].includes(word)),
    );
    if (this.sorted) {
      const { column, down } = this.sorted;
      const values = this.rows.map((row) => column.value(row));
      places.sort((a, b) => compared(values[a], values[b], down) || a - b);
    }
    return places;
  }

  draw() {
    const places = this.shown();
    const drawn = places.slice(0, this.most);
    this.body.replaceChildren(...drawn.map((i) => this.rowNode(i)));
    if (this.open !== null && drawn.includes(this.open)) this.toggle(this.open, true);
    const first = this.body.querySelector("tr");
    if (first) first.tabIndex = 0;
    this.more.hidden = places.length <= this.most;
    this.more.textContent = `show all ${places.length}`;
    const n = this.rows.length;
    this.count.textContent = places.length < n ? `${places.length} of ${n}` : `${n}`;
    this.heads.forEach((head, i) => {
      const isSorted = this.sorted?.column === this.columns[i];
      head.setAttribute("aria-sort", isSorted ? (this.sorted.down ? "descending" : "ascending") : "none");
    });
  }

  rowNode(i) {
    const row = this.rows[i];
    const cells = this.columns.map((column) => {
      const value = column.value(row);
      let content;
      if (column.node) content = column.node(row);
      else if (column.kind === "text") {
        content = isUnknown(value)
          ? element("span", { class: "unknown", title: column.why?.(row) ?? "unknown" }, "?")
          : nameElement(String(value), column.most ?? 44);
      } else {
        content = isUnknown(value) && column.none
          ? element("span", { class: "unknown", title: column.none, "data-value": "null" }, "–")
          : figure(column.kind, value, column.why?.(row), column.form?.(value));
      }
      const cell = element("td", { role: "gridcell", "data-label": column.heading, class: `k-${column.kind}${column.bar ? " barred" : ""}${column.wraps ? " wraps" : ""}` }, content);
      if (column.bar) cell.style.backgroundSize = `${column.largest ? (100 * (value ?? 0)) / column.largest : 0}% 100%`;
      return cell;
    });
    return element(
      "tr",
      { role: "row", tabindex: "-1", "data-row": i, "aria-expanded": "false", onclick: () => this.onClick(i) },
      ...cells,
    );
  }

  onClick(i) {
    // Ignore clicks that select text, for example to copy it.
    if (String(getSelection())) return;
    this.toggle(i);
  }

  line(i) {
    return this.body.querySelector(`tr[data-row="${i}"]`);
  }

  toggle(i, open = this.open !== i) {
    const old = this.body.querySelector("tr.detail");
    if (old) {
      old.previousSibling.setAttribute("aria-expanded", "false");
      old.remove();
    }
    this.open = open ? i : null;
    if (open) {
      const line = this.line(i);
      line.setAttribute("aria-expanded", "true");
      const cell = element("td", { role: "gridcell", colspan: this.columns.length }, fieldsOf(this.rows[i], this.columns));
      line.after(element("tr", { role: "row", "aria-level": 2, class: "detail" }, cell));
    }
  }

  sort(column) {
    // The first click sorts figures in descending and names in ascending order.
    const down = this.sorted?.column === column ? !this.sorted.down : column.kind !== "text";
    this.sorted = { column, down };
    this.draw();
  }

  filter(words, name = "") {
    this.words = words;
    this.class = name;
    if (this.input.value !== words) this.input.value = words;
    if (this.select) this.select.value = name;
    this.draw();
  }

  showAll() {
    this.most = Infinity;
    this.draw();
    this.line(this.shown()[FIRST_ROWS])?.focus();
  }

  // Opens a row and scrolls to it; called by a click on a mark.
  goTo(i) {
    unfold(this.node);
    if (!this.shown().slice(0, this.most).includes(i)) {
      this.words = this.input.value = "";
      this.class = "";
      if (this.select) this.select.value = "";
      if (!this.shown().slice(0, this.most).includes(i)) this.most = Infinity;
      this.draw();
    }
    this.toggle(i, true);
    this.focusRow(this.line(i));
    this.line(i).scrollIntoView({ block: "center" });
  }

  // Filters the rows and scrolls to the table.
  goToRows(words, name) {
    unfold(this.node);
    this.filter(words, name);
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
    const at = lines.indexOf(event.target);
    if (at < 0) return;
    const place = Number(lines[at].dataset.row);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: lines.length - 1 }[event.key];
    if (lines[to]) this.focusRow(lines[to]), lines[to].scrollIntoView({ block: "nearest" });
    else if (event.key === "Enter" || event.key === " ") this.toggle(place);
    else if (event.key === "Escape") this.toggle(place, false);
    else if (to === undefined) return;
    event.preventDefault();
  }
}

// Returns the width that a column needs, in pixels: texts break into lines, headings and figures do
// not.
function widthOfColumn({ kind, name, heading, wraps }) {
  const least = wraps ? 320 : name === "line" ? 150 : name === "class" ? 134 : kind === "text" ? 90 : 54;
  return Math.max(least, 1.1 * widthOf(heading) + 30);
}

// Shows a small figure that was rounded to 0 as `<0.001`, for example.
function notNothing(text, number) {
  return number > 0 && Number(text) === 0 ? `<${text.replace(/0$/, "1")}` : text;
}

// Returns the text in which filters search.
function textOf(value) {
  if (value === null || typeof value !== "object") return readableLines(value);
  return Object.values(value).map(textOf).join("\n");
}

// Compares two values; unknown values come last in both directions.
function compared(a, b, down) {
  if (isUnknown(a) || isUnknown(b)) return isUnknown(a) - isUnknown(b);
  const [x, y] = down ? [b, a] : [a, b];
  return typeof x === "number" && typeof y === "number" ? x - y : x < y ? -1 : x > y ? 1 : 0;
}

const LABELS = {
  source_user: "line",
  source_inner: "innermost line",
  source_is: "innermost line is",
  source_stack: "stack",
  hlo_op: "op",
  tf_op: "op path",
  agg_key: "group",
  pct_of_step: "% of step",
  what_helps: "what helps",
  says: "what was seen",
};

// Returns a field's label: the label of its column, or else its name as words, without the unit.
function labelOf(name, columns) {
  const found = columns.find((column) => column.name === name)?.label ?? LABELS[name];
  return found ?? readable(name).replace(/_(ps|bytes)$/, "").replace(/^pct_/, "% ").replace(/_pct$/, " %").replaceAll("_", " ");
}

// Shows all fields of a row, and the stack of its line.
function fieldsOf(row, columns) {
  const list = element("dl", { class: "fields" });
  const stack = row.source_stack ?? stackOf(row.agg_key);
  const fields = stack ? { ...row, source_stack: stack } : row;
  for (const [name, value] of Object.entries(fields)) {
    list.append(element("dt", { "data-name": name }, labelOf(name, columns)), element("dd", {}, valueNode(name, value)));
  }
  return list;
}

const stackOf = (key) => key && ANSWERS.by_source.groups.find((group) => group.agg_key === key)?.source_stack;

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
  return element(
    "ul",
    { class: "map" },
    ...Object.entries(value).map(([key, held]) =>
      element("li", {}, element("span", { class: "muted" }, `${readable(shortened(key, 200))} `), valueNode(inner(key), held)),
    ),
  );
}
