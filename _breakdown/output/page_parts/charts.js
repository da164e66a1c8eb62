// Draws the budget bar, the timeline and the step columns.

// Returns the parts of the period: the classes of the step, and the pause between steps if the text
// shows it, too.
function partsOf({ answers: { bottleneck } }) {
  const { budget, between_steps_ps: pause, period_ps: period } = bottleneck;
  const parts = budget.filter((row) => row.dur_ps > 0).map((row) => ({
    ...row,
    name: CLASSES[row.class],
    share: `${asPercent(row.pct_of_step)} of the step`,
    go: () => goToClass(row.class),
  }));
  const isShown = 100 * pause > period;
  if (isShown) parts.push({ class: "idle", name: "between steps", dur_ps: pause, share: `${asShare(pause / period)} of the period`, go: goToPause() });
  return parts;
}

const sumOf = (parts) => parts.reduce((sum, part) => sum + part.dur_ps, 0);

// Returns a bar of the parts of the period, which are as wide as their share; labels that do not fit
// are omitted.
function budgetBar(side) {
  const parts = partsOf(side);
  const whole = sumOf(parts);
  const marks = parts.map(({ name, dur_ps: ps, share, lost_ps: lost, go }) => ({
    lines: [`${name} ${asTime(ps)}`, share, lost ? `lost ${asTime(lost)}` : ""],
    go: side === DATA && go,
  }));
  const nodes = parts.map((part) => element("div", { class: `part c-${part.class}`, "data-value": part.dur_ps, "data-name": part.name }));
  nodes.forEach((made, i) => (made.style.width = `${(100 * parts[i].dur_ps) / whole}%`));
  const host = element("div", { class: "bar" }, ...nodes);
  makeMarks(host, nodes, (i) => marks[i], "the budget");
  drawnByWidth(host, (width) => {
    parts.forEach((part, i) => {
      // Each label is a part of the tooltip's first line, which is the name for screen readers.
      nodes[i].textContent = fitting((width * part.dur_ps) / whole - 16, marks[i].lines[0], asTime(part.dur_ps));
    });
  });
  return host;
}

function goToClass(name) {
  if (name === "idle") goTo("idle", "gaps.0");
  else if (name === "kernel") goTo("bottleneck", "kernels_of_unknown_cost.0");
  else TABLES.find(({ path }) => path === "findings")?.goToRows(`class=${name}`);
}

// Returns a function that goes to the cause of pauses. Pauses can have several causes; then a drawn
// pause has the only one whose line is among its frames.
function goToPause(frames) {
  const { causes } = ANSWERS.bottleneck;
  const found = causes.filter((row) => row.evidence.pauses);
  const isDrawn = ({ source_user: line }) => line && frames.some(({ name }) => name.startsWith(`$${line} `));
  const likely = frames && found.length > 1 ? found.filter(isDrawn) : found.slice(0, 1);
  const [cause] = likely.length === 1 ? likely : [];
  return cause && (() => goTo("bottleneck", `causes.${causes.indexOf(cause)}`));
}

// ---------------------------------------------------------------------------------------------
// Draws the timeline: the period, with the strip of the step in it.

function binEdge(side, i) {
  const [start, end] = side.page.step_window_ps.map(Number);
  return start + ((end - start) * i) / side.strip.n_bins;
}

// Draws one path per class, because one box per bin would need thousands of elements.
function stripPaths(side, names, rows) {
  const { n_bins: n, idle } = side.strip;
  const heights = new Float64Array(n);
  const width = binEdge(side, 1) - binEdge(side, 0);
  const sums = Array.from({ length: n }, (_, i) => rows.reduce((sum, row) => sum + row[i], idle[i]));
  return names.map((name, k) => {
    const row = rows[k];
    let path = "";
    for (let i = 0; i < n; i++) {
      if (!row[i]) continue;
      // If ops overlap, their times can add up to more than the bin's duration.
      const height = row[i] / Math.max(sums[i], width);
      path += `M${i},${(1 - heights[i]).toFixed(4)}h1v${(-height).toFixed(4)}h-1z`;
      heights[i] += height;
    }
    return svg("path", { d: path, class: `c-${name}` });
  });
}

// Returns the strip, the time by class in each bin of the step, stacked from the bottom; idle time
// stays empty.
function stripOf(side) {
  const { n_bins: n, by_class: byClass, idle, ops, longest } = side.strip;
  const names = Object.keys(CLASSES).filter((name) => byClass[name]);
  const cursor = svg("rect", { class: "cursor", y: 0, width: 1, height: 1, visibility: "hidden" });
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${n} 1`, preserveAspectRatio: "none", class: "strip", "aria-hidden": "true" },
    ...stripPaths(side, names, names.map((name) => byClass[name])),
    cursor,
  );
  const holder = element("div", { class: "strip-holder", tabindex: "0", role: "slider" }, picture);
  let at = 0;
  const op = (i) => (longest[i] === null ? null : ops[longest[i]]);
  const linesOf = (i) => {
    const who = op(i);
    const parts = names.filter((name) => byClass[name][i]).map((name) => `${CLASSES[name]} ${asTime(byClass[name][i])}`);
    return [
      `at ${asTime(binEdge(side, i) - binEdge(side, 0))} of the step, for ${asTime(binEdge(side, i + 1) - binEdge(side, i))}`,
      who ? `longest op: ${shortened(readable(who.hlo_op), 80)}` : "nothing runs",
      who && lineOf(who) ? shortened(readable(lineOf(who)), 120) : "",
      [...parts, idle[i] ? `idle ${asTime(idle[i])}` : ""].filter(Boolean).join(", "),
    ];
  };
  const moveTo = (i) => {
    at = Math.max(0, Math.min(n - 1, i));
    cursor.setAttribute("x", at);
    cursor.setAttribute("visibility", "visible");
    holder.setAttribute("aria-valuenow", at);
    holder.setAttribute("aria-valuetext", linesOf(at).filter(Boolean).join(", "));
  };
  const go = () => {
    if (side !== DATA) return;
    const who = op(at);
    if (who) goToOp(who);
    else goToClass("idle");
  };
  filled(holder, { "aria-label": "the step over time", "aria-valuemin": 0, "aria-valuemax": n - 1 }, []);
  moveTo(0);
  cursor.setAttribute("visibility", "hidden");
  holder.addEventListener("mousemove", (event) => {
    const box = holder.getBoundingClientRect();
    moveTo(Math.floor(((event.clientX - box.left) / box.width) * n));
    showTip(linesOf(at), event.clientX, event.clientY);
  });
  const leave = () => {
    hideTip();
    cursor.setAttribute("visibility", "hidden");
  };
  holder.addEventListener("mouseleave", leave);
  holder.addEventListener("blur", leave);
  holder.addEventListener("click", go);
  holder.addEventListener("keydown", (event) => {
    const far = event.shiftKey ? Math.ceil(n / 50) : 1;
    const to = { ArrowRight: at + far, ArrowLeft: at - far, Home: 0, End: n - 1 }[event.key];
    if (to !== undefined) {
      moveTo(to);
      const box = holder.getBoundingClientRect();
      showTip(linesOf(at), box.left + (box.width * at) / n, box.bottom - 14);
    } else if (event.key === "Enter" || event.key === " ") go();
    else return;
    event.preventDefault();
  });
  return element("div", { class: "step" }, holder, gapLane(side));
}

// Goes to an op's row or, if the table lacks the op, to the findings of its class.
function goToOp(who) {
  const i = ANSWERS.by_op.ops.findIndex((row) => row.hlo_op === who.hlo_op && row.program_id === who.program_id);
  if (i >= 0) goTo("by_op", `ops.${i}`);
  else goToClass(who.class);
}

// Draws the period: the strip of this page's step, beside it the pause, and above the pause what the
// host does, innermost call last. If the step takes less than a third of the period, the strip has a
// chart of its own.
function drawTimeline(host, side) {
  if (!side.strip.n_bins) return;
  const ofStep = { start_ps: 0, dur_ps: side.page.step_duration_ps, picked: true };
  const alone = { dur_ps: ofStep.dur_ps, steps: [ofStep], pauses: [], frames: [] };
  const period = side.period ?? alone;
  const isWide = 3 * period.steps.find((step) => step.picked).dur_ps >= period.dur_ps;
  if (side.period) host.append(element("p", { class: "says" }, saysOfHost(period)));
  drawPeriod(host, side, period, isWide);
  if (!isWide) drawPeriod(host, side, alone, true);
}

function saysOfHost({ thread, frames }) {
  if (thread === null) return "The capture has no host events in the pause.";
  const own = frames.some((frame) => frame.is_own) ? "; own code is blue" : "";
  return `Above the pause: what the host's thread ${shortened(readable(thread), 80)} calls${own}.`;
}

function drawPeriod(host, side, { dur_ps: duration, steps, pauses, frames }, hasStrip) {
  const top = 20 * frames.reduce((most, { depth }) => Math.max(most, depth + 1), 0);
  const height = hasStrip ? 119 : 19;
  const place = (node, { start_ps: start, dur_ps: ps }, top) =>
    Object.assign(node.style, { left: `${(100 * start) / duration}%`, width: `${(100 * ps) / duration}%`, top: `${top}px` });
  const nameOf = ({ name }) => readable((name ?? "(unnamed)").replace(/^\$/, ""));
  const go = goToPause(frames);
  const parts = [
    ...frames.map((frame) => ({ ...frame, cls: frame.is_own ? "own" : "", top: 20 * frame.depth, says: nameOf(frame) })),
    ...steps.filter((step) => !(hasStrip && step.picked)).map((step) => ({ ...step, cls: step.picked ? "picked" : "", top, height, says: `step ${nameOf(step)}${step.picked ? ", this page's" : ""}` })),
    ...pauses.map((pause) => ({ ...pause, cls: "c-idle", top, height, says: `pause ${asTime(pause.dur_ps)}`, go })),
  ];
  const nodes = parts.map((part) => {
    const made = element("div", { class: `frame ${part.cls}`, "data-value": part.dur_ps }, part.says);
    place(made, part, part.top);
    if (part.height) made.style.height = `${part.height}px`;
    return made;
  });
  const markOf = ({ says, start_ps: start, dur_ps: ps, go }) => ({
    lines: [shortened(says, 300), `${asTime(ps)}, ${asPercent((100 * ps) / duration)} of what is drawn`, `at ${asTime(start)}`],
    go: side === DATA && go,
  });
  const marks = element("div", {}, ...nodes);
  makeMarks(marks, nodes, (i) => markOf(parts[i]), "the period");
  const chart = element("div", { class: "period" }, marks);
  chart.style.height = `${top + height + 1}px`;
  if (hasStrip) {
    const strip = stripOf(side);
    place(strip, steps.find((step) => step.picked), top);
    chart.append(strip);
    chart.style.height = `${top + 138}px`;
  }
  host.append(chart, axis(duration));
}

// Shows the longest gaps below the strip, because most gaps are too short to be visible in the
// strip. Omits gaps below 0.05 % of the step, which would look longer than they are.
function gapLane(side) {
  const start = binEdge(side, 0);
  const all = side.answers.idle.gaps;
  const { step_duration_ps: duration } = side.page;
  const gaps = all.filter((gap) => 2000 * gap.dur_ps >= duration);
  const nodes = gaps.map((gap) => {
    const made = element("div", { class: "gap c-idle", "data-value": gap.dur_ps });
    made.style.left = `${(100 * (gap.start_ps - start)) / duration}%`;
    made.style.width = `${(100 * gap.dur_ps) / duration}%`;
    return made;
  });
  const lane = element("div", { class: "lane" }, ...nodes);
  makeMarks(
    lane,
    nodes,
    (i) => ({
      lines: [
        `gap of ${asTime(gaps[i].dur_ps)}`,
        `at ${asTime(gaps[i].start_ps - start)}`,
        Object.entries(gaps[i].cause).map(([cause, time]) => `${cause} ${asTime(time)}`).join(", "),
      ],
      go: side === DATA && (() => goTo("idle", `gaps.${all.indexOf(gaps[i])}`)),
    }),
    "the longest idle gaps",
  );
  return lane;
}

function axis(duration) {
  const host = element("div", { class: "axis", "aria-hidden": "true" });
  const unit = unitOf(TIMES, duration);
  for (let i = 0; i <= 4; i++) {
    const label = element("span", {}, `${inUnit((duration * i) / 4, unit, duration)} ${unit[0]}`);
    label.style.left = `${25 * i}%`;
    host.append(label);
  }
  return host;
}

// ---------------------------------------------------------------------------------------------
// Draws one column per step; its height is proportional to the step's duration.

function stepColumns(steps) {
  const longest = steps.reduce((most, step) => Math.max(most, step.duration_ps), 1);
  const nodes = steps.map((step) => {
    const made = element("div", { class: `column${step.picked ? " picked" : ""}`, "data-value": step.duration_ps });
    made.style.height = `${Math.max(2, (100 * step.duration_ps) / longest)}%`;
    return made;
  });
  const host = element("div", { class: "columns" }, ...nodes);
  makeMarks(
    host,
    nodes,
    (i) => ({
      lines: [
        `step ${readable(steps[i].name || "(unnamed)")} (index ${steps[i].index})${steps[i].picked ? ", this page's" : ""}`,
        asTime(steps[i].duration_ps),
        `${steps[i].n_xla_ops_events} op events`,
      ],
      go: () => goTo("summary", `steps.${i}`),
    }),
    "steps",
  );
  return host;
}
