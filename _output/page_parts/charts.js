// Draws the budget bar, the strip (the step over time) and the step columns.

// Returns a bar of the classes. A part's width is its share of the sum; labels that do not fit are
// omitted.
function budgetBar(side) {
  const rows = side.answers.bottleneck.budget.filter((row) => row.dur_ps > 0);
  const whole = rows.reduce((sum, row) => sum + row.dur_ps, 0);
  const marks = rows.map((row) => ({
    lines: [`${CLASSES[row.class]} ${asPercent(row.pct_of_step)}, ${asTime(row.dur_ps)}`, row.lost_ps ? `lost ${asTime(row.lost_ps)}` : ""],
    go: side === DATA && (() => goToClass(row.class)),
  }));
  const nodes = rows.map((row) => element("div", { class: `part c-${row.class}`, "data-value": row.dur_ps, "data-name": CLASSES[row.class] }));
  nodes.forEach((made, i) => (made.style.width = `${(100 * rows[i].dur_ps) / whole}%`));
  const host = element("div", { class: "bar" }, ...nodes);
  makeMarks(host, nodes, (i) => marks[i], "the step's budget");
  drawnByWidth(host, (width) => {
    rows.forEach((row, i) => {
      // Each label is a part of the tooltip's first line, which is the name for screen readers.
      const [says] = marks[i].lines;
      const share = asPercent(row.pct_of_step);
      nodes[i].textContent = fitting((width * row.dur_ps) / whole - 16, says, `${CLASSES[row.class]} ${share}`, share);
    });
  });
  return host;
}

function goToClass(name) {
  if (name === "idle") goTo("idle", "gaps.0");
  else if (name === "kernel") goTo("bottleneck", "kernels_of_unknown_cost.0");
  else TABLES.find(({ path }) => path === "findings")?.goToRows(`class=${name}`);
}

// ---------------------------------------------------------------------------------------------
// Draws the timeline: the period, and the strip, the step over time.

function drawTimeline(host, side) {
  drawPeriod(host, side);
  drawStrip(host, side);
}

// Draws the strip: the time by class in each bin, stacked from the bottom; idle time stays empty.

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

function drawStrip(host, side) {
  const { n_bins: n, by_class: byClass, idle, ops, longest } = side.strip;
  if (!n) return;
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
      `from ${asTime(binEdge(side, i) - binEdge(side, 0))} for ${asTime(binEdge(side, i + 1) - binEdge(side, i))}`,
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
  host.append(holder, gapLane(side), axis(side.page.step_duration_ps));
}

// Goes to an op's row or, if the table lacks the op, to the findings of its class.
function goToOp(who) {
  const i = ANSWERS.by_op.ops.findIndex((row) => row.hlo_op === who.hlo_op && row.program_id === who.program_id);
  if (i >= 0) goTo("by_op", `ops.${i}`);
  else goToClass(who.class);
}

// Returns the cause of the drawn pause: pauses can have several, with different lines.
function reasonOfPause(frames) {
  const causes = ANSWERS.bottleneck.causes.filter((row) => row.evidence.pauses);
  return causes.length === 1 ? causes[0] : causes.find(({ source_user: line }) => line && frames.some(({ name }) => name.startsWith(`$${line} `)));
}

// Draws the step, the pause after it, and above the pause the host's events, innermost last.
function drawPeriod(host, side) {
  const { period } = side;
  if (!period) return;
  const { dur_ps: duration, steps, pauses, frames, thread } = period;
  const reason = reasonOfPause(frames);
  const bottom = frames.reduce((most, { depth }) => Math.max(most, depth + 1), 0);
  const named = frames.map((frame) => ({ ...frame, cls: "frame", name: readable(frame.name.replace(/^\$/, "")) }));
  const parts = [
    ...named,
    ...steps.map((step) => ({ ...step, depth: bottom, cls: `frame ${step.picked ? "picked" : ""}`, name: `step ${readable(step.name ?? "(unnamed)")}${step.picked ? ", this page's" : ""}` })),
    ...pauses.map((span) => ({ ...span, depth: bottom, cls: "frame c-idle", name: `pause ${asTime(span.dur_ps)}`, isPause: true })),
  ];
  const nodes = parts.map(({ cls, depth, start_ps: start, dur_ps: ps, name }) => {
    const made = element("div", { class: cls, "data-value": ps }, name);
    Object.assign(made.style, { left: `${(100 * start) / duration}%`, width: `${(100 * ps) / duration}%`, top: `${20 * depth}px` });
    return made;
  });
  const chart = element("div", { class: "flame" }, ...nodes);
  chart.style.height = `${20 * (bottom + 1)}px`;
  const markOf = ({ name, start_ps: start, dur_ps: ps, isPause }) => ({
    lines: [shortened(name, 300), `${asTime(ps)}, ${asPercent((100 * ps) / duration)}`, `at ${asTime(start)}`],
    go: isPause && side === DATA && reason && (() => goTo("bottleneck", `causes.${ANSWERS.bottleneck.causes.indexOf(reason)}`)),
  });
  makeMarks(chart, nodes, (i) => markOf(parts[i]), "the period");
  const says = thread === null ? "the capture has no host events in the pause" : `thread ${shortened(readable(thread), 80)}`;
  host.append(element("h3", {}, "The period, with what the host does in the pause"), element("p", { class: "says" }, says), chart, axis(duration));
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
