// Draws the roofline: two logarithmic axes, the chip's roofs, and a point for each source group.

const DTYPES = ["fp8", "bf16", "fp16", "fp32"];

function drawRoofline(host, side) {
  const answer = side.answers.roofline;
  const groups = answer.groups;
  const points = groups
    .map((group, i) => ({
      i,
      group,
      x: group.arithmetic_intensity,
      // One flop per picosecond is one TFLOP per second.
      y: group.total_dur_ps ? group.flops_sum / group.total_dur_ps : 0,
    }))
    .filter(({ x, y }) => x > 0 && y > 0);
  if (!points.length) {
    host.append(element("p", { class: "absent" }, "? No line has known flops, bytes and peak."));
    return;
  }
  const chart = element("div", { class: "roofline" });
  host.append(chart);
  const peaks = answer.peaks_used;
  const bandwidth = peaks.peak_hbm_gibps === null ? null : (peaks.peak_hbm_gibps * 2 ** 30) / 1e12;
  const used = new Set(groups.map((group) => group.dtype));
  const roofs = DTYPES.map((dtype) => ({ dtype, peak: peaks[`peak_tflops_${dtype}`] })).filter(({ dtype, peak }) => peak !== null && used.has(dtype));
  drawnByWidth(chart, (width) => chart.replaceChildren(...plotOf(side, points, roofs, bandwidth, width)));
}

// Returns the range of the values' logarithms, widened by `room` at both ends.
function logRange(values, room) {
  const logs = values.map(Math.log10);
  return [logs.reduce((a, b) => Math.min(a, b)) - room, logs.reduce((a, b) => Math.max(a, b)) + room];
}

function plotOf(side, points, roofs, bandwidth, width) {
  const height = Math.max(260, Math.min(460, width * 0.45));
  const margin = { left: 52, right: 12, top: 12, bottom: 40 };
  // Small points must not stretch the axes; points outside the axes appear only in the table.
  const large = points.filter(({ group }) => 200 * group.total_dur_ps >= side.page.step_duration_ps);
  const fitted = large.length ? large : points;
  const ridges = bandwidth === null ? [] : roofs.map(({ peak }) => peak / bandwidth);
  const [x0, x1] = logRange([...fitted.map((point) => point.x), ...ridges], 0.3);
  const [y0, y1] = logRange([...fitted.map((point) => point.y), ...roofs.map(({ peak }) => peak)], 0.3);
  const inner = { width: width - margin.left - margin.right, height: height - margin.top - margin.bottom };
  const px = (x) => margin.left + ((Math.log10(x) - x0) / (x1 - x0)) * inner.width;
  const py = (y) => margin.top + (1 - (Math.log10(y) - y0) / (y1 - y0)) * inner.height;
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  picture.append(...gridOf(x0, x1, y0, y1, px, py, width, height, margin));
  const isOfPage = side === DATA;
  const clipName = isOfPage ? "inside" : "inside-before";
  const clip = svg("clipPath", { id: clipName }, svg("rect", { x: margin.left, y: margin.top, ...inner }));
  picture.append(clip);
  const lines = svg("g", { "clip-path": `url(#${clipName})` });
  let nameAbove = -Infinity;
  const taken = [];
  for (const { dtype, peak } of roofs) {
    const ridge = bandwidth === null ? 10 ** x0 : peak / bandwidth;
    lines.append(svg("line", { class: "roof", x1: px(ridge), y1: py(peak), x2: px(10 ** x1), y2: py(peak) }));
    // Put the name of a roof below the roof's line if there is no room above.
    const y = py(peak) - nameAbove < 26 ? py(peak) + 13 : py(peak) - 4;
    nameAbove = y;
    taken.push({ x: px(10 ** x1) - 150, y: y - 12, w: 150, h: 16 });
    picture.append(
      svg("text", { class: "roof-name", x: px(10 ** x1) - 4, y, "text-anchor": "end" }, `${dtype} ${peak} TFLOPS`),
    );
  }
  if (bandwidth !== null) {
    const highest = roofs.reduce((most, { peak }) => Math.max(most, peak), 0) || 10 ** y1;
    const from = Math.max(10 ** x0, 10 ** y0 / bandwidth);
    lines.append(
      svg("line", { class: "roof", x1: px(from), y1: py(from * bandwidth), x2: px(highest / bandwidth), y2: py(highest) }),
    );
    const label = from * (Math.min(highest, 10 ** y1) / bandwidth / from) ** 0.4;
    picture.append(
      svg("text", { class: "roof-name", x: px(label) - 8, y: py(label * bandwidth) - 8, "text-anchor": px(label) < 140 ? "start" : "end" }, `HBM ${(bandwidth).toFixed(2)} TB/s`),
    );
  }
  const inside = points.filter(({ x, y }) => Math.log10(x) > x0 && Math.log10(x) < x1 && Math.log10(y) > y0 && Math.log10(y) < y1);
  const [marks, labels] = pointsOf(isOfPage, inside, px, py, width - margin.right, taken);
  picture.append(lines, marks, labels);
  const n = points.length - inside.length;
  const out = n ? element("p", { class: "muted" }, `${n} more points, each less than 0.5 % of the step, lie outside the axes${isOfPage ? "; the table has them" : ""}.`) : "";
  return [picture, out];
}

// Returns an axis's ticks: powers of ten and, on a short axis, 2 and 5 times these powers.
function ticksOf(low, high) {
  const factors = high - low < 2.5 ? [1, 2, 5] : [1];
  const found = [];
  for (let power = Math.floor(low); power <= high; power++) {
    for (const factor of factors) {
      const log = power + Math.log10(factor);
      if (log >= low && log <= high) found.push({ value: factor * 10 ** power, text: power >= 0 && power < 5 ? String(factor * 10 ** power) : `${factor}e${power}` });
    }
  }
  return found;
}

function gridOf(x0, x1, y0, y1, px, py, width, height, margin) {
  const found = [];
  for (const { value, text } of ticksOf(x0, x1)) {
    const x = px(value);
    found.push(svg("line", { class: "grid", x1: x, x2: x, y1: margin.top, y2: height - margin.bottom }));
    found.push(svg("text", { class: "tick", x, y: height - margin.bottom + 14, "text-anchor": "middle" }, text));
  }
  for (const { value, text } of ticksOf(y0, y1)) {
    const y = py(value);
    found.push(svg("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y, y2: y }));
    found.push(svg("text", { class: "tick", x: margin.left - 6, y: y + 4, "text-anchor": "end" }, text));
  }
  const middle = (margin.top + height - margin.bottom) / 2;
  found.push(
    svg("text", { class: "axis-name", x: (margin.left + width) / 2, y: height - 6, "text-anchor": "middle" }, "flops per byte"),
    svg("text", { class: "axis-name", transform: `translate(12,${middle}) rotate(-90)`, "text-anchor": "middle" }, "TFLOPS"),
  );
  return found;
}

// Returns the points, and the labels of the five largest.
function pointsOf(isOfPage, points, px, py, right, taken) {
  const longest = points.reduce((most, { group }) => Math.max(most, group.total_dur_ps), 1);
  const radius = ({ group }) => 3 + 15 * Math.sqrt(group.total_dur_ps / longest);
  // Draw the largest points first, so that no point hides a smaller point.
  const ordered = [...points].sort((a, b) => b.group.total_dur_ps - a.group.total_dur_ps);
  const nodes = ordered.map(({ group, x, y }) =>
    svg("circle", {
      class: `point c-${group.bound === "compute" ? "compute_bound" : "memory_bound"}`,
      cx: px(x),
      cy: py(y),
      r: radius({ group }),
      "data-value": group.roofline_util,
    }),
  );
  const host = svg("g", {}, ...nodes);
  makeMarks(
    host,
    nodes,
    (i) => {
      const { group, x, y } = ordered[i];
      return {
        lines: [
          shortened(readable(group.kernel ?? lineOf(group) ?? group.agg_key), 120),
          group.kernel && lineOf(group) ? shortened(readable(lineOf(group)), 120) : "",
          `${asTime(group.total_dur_ps)}, ${asShare(group.roofline_util)} of its roof (${group.bound})`,
          `${y.toPrecision(4)} TFLOPS at ${x} flops per byte, ${group.dtype}`,
          `${asTime(group.shortfall_per_op_ps)} beyond the roofs of its ops`,
        ],
        go: isOfPage && (() => goTo("roofline", `groups.${ordered[i].i}`)),
      };
    },
    "source groups below their roofs",
  );
  return [host, svg("g", {}, ...labelsOf(ordered.slice(0, 5), radius, px, py, right, taken))];
}

// Places each label next to its point, without overlapping roof names, other labels or labelled
// points. Omits a label if there is no room for it.
function labelsOf(points, radius, px, py, right, taken) {
  taken.push(...points.map((point) => ({ x: px(point.x) - radius(point), y: py(point.y) - radius(point), w: 2 * radius(point), h: 2 * radius(point) })));
  const overlap = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
  return points.map((point) => {
    const { group, x, y } = point;
    const text = shortened(readable(group.kernel ?? withoutFolder(lineOf(group) ?? group.agg_key)), 28);
    const w = widthOf(text);
    const r = radius(point) + 4;
    const box = [[r, -7], [-r - w, -7], [-w / 2, r - 2], [-w / 2, -r - 12], [0, r - 2], [-w, r - 2], [-w / 2, r + 12], [0, r + 12], [-w, r + 12]]
      .map(([dx, dy]) => ({ x: px(x) + dx, y: py(y) + dy, w, h: 14 }))
      .find((box) => box.x > 56 && box.x + w < right && !taken.some((other) => overlap(box, other)));
    if (!box) return null;
    taken.push(box);
    return svg("text", { class: "point-name", x: box.x, y: box.y + 11 }, text);
  });
}
