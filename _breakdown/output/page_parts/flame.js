// Draws the flame graph, outermost box on top: by call path (from the stacks of all source groups)
// or by scope. Both are trees of nodes {name, title, value, times (by class), children, parent,
// row}.

const NARROWEST = 1.5; // pixels; narrower boxes are not drawn
const LEAST_LABEL = 30; // pixels; narrower boxes have no label

function node(name, parent, title = name) {
  return { name, title, value: 0, times: {}, children: new Map(), parent, row: null, depth: parent ? parent.depth + 1 : 0 };
}

function child(parent, name, title) {
  if (!parent.children.has(name)) parent.children.set(name, node(name, parent, title));
  return parent.children.get(name);
}

function addTimes(into, value, times) {
  into.value += value;
  for (const [name, time] of Object.entries(times)) into.times[name] = (into.times[name] ?? 0) + time;
}

// Removes the column from `file:line:column`, because the graph does not show columns.
const withoutColumn = (frame) => frame.replace(/^(.*:\d+):\d+$/, "$1");

function treeOfPaths({ answers, classes }) {
  const root = node("all ops", null);
  answers.by_source.groups.forEach((group, i) => {
    const times = classes.by_source[i] ?? {};
    const frames = group.source_stack
      ? group.source_stack.split("\n").map(withoutColumn)
      : ["(without a stack)", group.source_inner ?? group.agg_key];
    let at = root;
    addTimes(at, group.total_dur_ps, times);
    for (const frame of frames) {
      at = child(at, frame);
      addTimes(at, group.total_dur_ps, times);
      // The button for a box's row goes to the costliest group below the box.
      at.row ??= { value: -1 };
      if (group.total_dur_ps > at.row.value) at.row = { mode: "by_source", path: `groups.${i}`, value: group.total_dur_ps };
    }
  });
  const rest = answers.by_source.tail.dur_ps;
  if (rest) {
    addTimes(root, rest, {});
    addTimes(child(root, "(shorter groups, not on this page)"), rest, { other: rest });
  }
  return root;
}

function treeOfScopes({ answers, classes }) {
  const root = node("all ops", null);
  const { scopes, no_scope } = answers.by_scope;
  // Rows are in depth-first order, so the parent is the last preceding row one level up.
  const path = [];
  scopes.forEach((row, i) => {
    const times = classes.by_scope[i] ?? {};
    path.length = row.depth;
    const parent = path[row.depth - 1] ?? root;
    const at = row.depth ? child(parent, row.name, row.scope) : child(root, "(scopes)", "all ops with a scope");
    at.row = { mode: "by_scope", path: `scopes.${i}` };
    addTimes(at, row.total_dur_ps, times);
    path[row.depth] = at;
    if (!row.depth) addTimes(root, row.total_dur_ps, times);
  });
  if (no_scope.dur_ps) {
    const times = classes.no_scope;
    addTimes(root, no_scope.dur_ps, times);
    addTimes(child(root, "(without a scope)"), no_scope.dur_ps, times);
  }
  return root;
}

// Returns the class with the most time in a map from class to time.
const mainClass = (times) => Object.entries(times).sort((a, b) => b[1] - a[1])[0]?.[0] ?? "other";

// Returns true if no class takes three quarters of the time, so a single colour would mislead.
function isMixed(times) {
  const all = Object.values(times);
  return 4 * Math.max(...all, 0) < 3 * all.reduce((a, b) => a + b, 0);
}

// Merges a node with its only child if the child takes all of the node's time.
function collapsed(root) {
  const waiting = [...root.children.values()];
  while (waiting.length) {
    const at = waiting.pop();
    const names = [at.name];
    const titles = [at.title];
    for (;;) {
      const [only] = at.children.values();
      if (at.children.size !== 1 || only.value !== at.value) break;
      at.children = only.children;
      at.row = only.row ?? at.row;
      names.push(only.name);
      titles.push(only.title);
    }
    at.names = names;
    at.title = titles.join(" → ");
    at.depth = at.parent.depth + 1;
    for (const part of at.children.values()) {
      part.parent = at;
      waiting.push(part);
    }
  }
  return root;
}

// Returns a box's label: the names of its chain, or only the first and last name of a long chain.
function labelOfBox(at) {
  const names = (at.names ?? [at.name]).map(withoutFolder);
  return (names.length > 3 ? [names[0], "…", names.at(-1)] : names).join(" → ");
}

// Returns the gradient of the stripe that shows the classes of a mixed box.
function stripeOf(times) {
  const whole = Object.values(times).reduce((a, b) => a + b, 0);
  let from = 0;
  const stops = Object.keys(CLASSES).filter((name) => times[name]).map((name) => {
    const to = from + (100 * times[name]) / whole;
    const stop = `var(--${name}) ${from}% ${to}%`;
    from = to;
    return stop;
  });
  return `linear-gradient(to right, ${stops.join(", ")})`;
}

class Flame {
  constructor(host, side) {
    // Without scopes, the graph of scopes would be a single box.
    const kind = side.answers.by_scope.scopes.length ? "scopes" : "paths";
    Object.assign(this, { side, kind, trees: {}, words: "", width: 0, boxes: [] });
    this.build(host);
    this.pick(this.kind);
    drawnByWidth(this.chart, (width) => {
      this.width = width;
      this.draw();
    });
  }

  build(host) {
    const choice = (kind, label) =>
      element(
        "label",
        {},
        element("input", { type: "radio", name: this.side === DATA ? "flame-by" : "flame-before-by", value: kind, checked: kind === this.kind, onchange: () => this.pick(kind) }),
        label,
      );
    this.search = element("input", {
      type: "search",
      placeholder: "search",
      "aria-label": "search the flame graph",
      oninput: () => this.find(this.search.value),
      onkeydown: (event) => {
        if (event.key === "Escape") this.find((this.search.value = ""));
      },
    });
    this.found = element("output", { class: "muted" });
    this.out = element("button", { type: "button", onclick: () => this.zoom(this.root) }, "reset zoom");
    this.chart = element("div", { class: "flame", role: "group", "aria-label": "flame graph" });
    this.chart.addEventListener("keydown", (event) => this.onKey(event));
    this.says = element("div", { class: "inspector" });
    host.append(
      element(
        "div",
        { class: "toolbar" },
        element("fieldset", {}, element("legend", { class: "unseen" }, "boxes"), choice("scopes", "scope"), choice("paths", "call path")),
        this.search,
        this.out,
        this.found,
      ),
      this.chart,
      this.says,
    );
  }

  pick(kind) {
    this.kind = kind;
    this.trees[kind] ??= collapsed((kind === "paths" ? treeOfPaths : treeOfScopes)(this.side));
    this.root = this.trees[kind];
    this.zoom(this.root, false);
    this.find(this.words);
  }

  zoom(to, takesFocus = true) {
    this.focus = this.active = to;
    this.draw();
    if (takesFocus) this.boxOf(to)?.focus({ preventScroll: true });
    this.inspect(to);
  }

  // Boxes above the zoomed box are as wide as the graph; widths below are proportional to time.
  draw() {
    this.boxes = [];
    if (!this.width) return;
    const around = [];
    for (let at = this.focus.parent; at; at = at.parent) around.unshift(at);
    around.forEach((at) => this.boxes.push({ at, left: 0, share: 1, isAround: true }));
    const waiting = [{ at: this.focus, left: 0, share: 1 }];
    while (waiting.length) {
      const box = waiting.pop();
      this.boxes.push(box);
      let left = box.left;
      const parts = [...box.at.children.values()].sort((a, b) => b.value - a.value);
      for (const part of parts) {
        const share = (box.share * part.value) / (box.at.value || 1);
        if (share * this.width >= NARROWEST) waiting.push({ at: part, left, share });
        left += share;
      }
    }
    const deepest = this.boxes.reduce((most, { at }) => Math.max(most, at.depth), 0);
    this.chart.style.height = `${(deepest + 1) * 20}px`;
    this.chart.replaceChildren(...this.boxes.map((box) => this.boxNode(box)));
    this.mark();
    this.out.disabled = this.focus === this.root;
  }

  boxNode(box) {
    const { at } = box;
    const mixed = isMixed(at.times);
    const hasRoom = box.share * this.width >= LEAST_LABEL;
    const made = element(
      "div",
      {
        class: `box ${mixed ? "mixed" : `c-${mainClass(at.times)}`}${box.isAround ? " around" : ""}`,
        role: "button",
        tabindex: at === this.active ? "0" : "-1",
        "data-value": at.value,
        "data-depth": at.depth,
        "aria-label": `${shortened(readable(at.title), 200)}, ${asTime(at.value)}`,
        onclick: () => this.zoom(at),
        onmousemove: (event) => showTip(this.lines(at), event.clientX, event.clientY),
        onmouseenter: () => this.inspect(at),
        onmouseleave: hideTip,
        onfocus: () => this.inspect(at),
      },
      hasRoom ? shortened(readable(labelOfBox(at)), 160) : "",
    );
    if (mixed) made.style.backgroundImage = stripeOf(at.times);
    made.style.left = `${100 * box.left}%`;
    made.style.width = `${100 * box.share}%`;
    made.style.top = `${20 * at.depth}px`;
    box.node = made;
    return made;
  }

  boxOf(at) {
    return this.boxes.find((box) => box.at === at)?.node;
  }

  lines(at) {
    const classes = Object.entries(at.times).sort((a, b) => b[1] - a[1]).slice(0, 4);
    return [
      shortened(readable(at.title), 300),
      `${asTime(at.value)}, ${asPercent((100 * at.value) / this.side.page.step_duration_ps)} of the step`,
      classes.map(([name, time]) => `${CLASSES[name]} ${asTime(time)}`).join(", "),
    ];
  }

  inspect(at) {
    const [title, ...rest] = this.lines(at);
    const { row } = at;
    this.says.replaceChildren(
      element("bdi", { class: "first" }, title),
      element("span", { class: "muted" }, rest.join(" · ")),
      row && this.side === DATA ? element("button", { type: "button", onclick: () => goTo(row.mode, row.path) }, "show row") : "",
    );
  }

  find(words) {
    this.words = words;
    const wanted = words.toLowerCase();
    this.matches = new Set();
    let total = 0;
    if (wanted) {
      const waiting = [{ at: this.root, counted: false }];
      while (waiting.length) {
        const { at, counted } = waiting.pop();
        const isMatch = at.title.toLowerCase().includes(wanted);
        if (isMatch) this.matches.add(at);
        if (isMatch && !counted) total += at.value;
        for (const part of at.children.values()) waiting.push({ at: part, counted: counted || isMatch });
      }
      const share = asPercent((100 * total) / (this.root.value || 1));
      this.found.replaceChildren(`${this.matches.size} found, `, figure("time", total), `, ${share} of all ops`);
    } else this.found.replaceChildren();
    this.mark();
  }

  mark() {
    for (const { at, node: box } of this.boxes) {
      box.classList.toggle("found", this.matches?.has(at) ?? false);
      box.classList.toggle("faint", Boolean(this.words) && !this.matches.has(at));
    }
  }

  onKey(event) {
    const { at } = this.boxes.find((box) => box.node === event.target) ?? {};
    if (!at) return;
    const drawn = this.boxes.map((box) => box.at);
    const ranked = (some) => some.filter((node) => drawn.includes(node)).sort((a, b) => b.value - a.value);
    const siblings = at.parent ? ranked([...at.parent.children.values()]) : [at];
    const place = siblings.indexOf(at);
    const to = {
      ArrowUp: at.parent,
      ArrowDown: ranked([...at.children.values()])[0],
      ArrowLeft: siblings[place - 1],
      ArrowRight: siblings[place + 1],
    };
    if (to[event.key]) this.move(to[event.key]);
    else if (event.key === "Enter" || event.key === " ") this.zoom(at);
    else if (event.key === "Escape") this.zoom(this.focus.parent ?? this.root);
    else if (!(event.key in to)) return;
    event.preventDefault();
  }

  move(to) {
    const old = this.boxOf(this.active);
    if (old) old.tabIndex = -1;
    this.active = to;
    const box = this.boxOf(to);
    box.tabIndex = 0;
    box.focus({ preventScroll: true });
    box.scrollIntoView({ block: "nearest" });
  }
}
