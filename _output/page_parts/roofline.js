// Draws the roofline: two logarithmic axes, the roofs of the chip, a point for each source group.

const DTYPES = ["fp8", "bf16", "fp16", "fp32"];

function drawRoofline(host, answer) {
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
  const roofs = DTYPES.filter((dtype) => peaks[`peak_tflops_${dtype}`] !== null).map((dtype) => ({
    dtype,
    peak: peaks[`peak_tflops_${dtype}`],
    isUsed: used.has(dtype),
  }));
  drawnByWidth(chart, (width) => chart.replaceChildren(plotOf(points, roofs, bandwidth, width)));
}

// Returns the range of powers of ten that contains the values, with room at the edges.
function decades(values) {
  const logs = values.filter((value) => value > 0).map(Math.log10);
  if (!logs.length) return [0, 1];
  const low = Math.floor(logs.reduce((a, b) => Math.min(a, b)) - 0.1);
  return [low, Math.ceil(logs.reduce((a, b) => Math.max(a, b)) + 0.1)];
}

function plotOf(points, roofs, bandwidth, width) {
  const height = Math.max(260, Math.min(460, width * 0.45));
  const margin = { left: 52, right: 12, top: 12, bottom: 40 };
  const ridges = bandwidth === null ? [] : roofs.map(({ peak }) => peak / bandwidth);
  const [x0, x1] = decades([...points.map((point) => point.x), ...ridges.map((ridge) => ridge * 3)]);
  const [y0, y1] = decades([...points.map((point) => point.y), ...roofs.map(({ peak }) => peak)]);
  const inner = { width: width - margin.left - margin.right, height: height - margin.top - margin.bottom };
  const px = (x) => margin.left + ((Math.log10(x) - x0) / (x1 - x0)) * inner.width;
  const py = (y) => margin.top + (1 - (Math.log10(y) - y0) / (y1 - y0)) * inner.height;
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  picture.append(...gridOf(x0, x1, y0, y1, px, py, width, height, margin));
  const clip = svg("clipPath", { id: "inside" }, svg("rect", { x: margin.left, y: margin.top, ...inner }));
  picture.append(clip);
  const lines = svg("g", { "clip-path": "url(#inside)" });
  let nameAbove = -Infinity;
  for (const { dtype, peak, isUsed } of roofs) {
    const ridge = bandwidth === null ? 10 ** x0 : peak / bandwidth;
    const kind = isUsed ? "roof" : "roof unused";
    lines.append(svg("line", { class: kind, x1: px(ridge), y1: py(peak), x2: px(10 ** x1), y2: py(peak) }));
    // Put the name of a roof below the roof's line if there is no room above.
    const y = py(peak) - nameAbove < 26 ? py(peak) + 13 : py(peak) - 4;
    nameAbove = y;
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
    const label = Math.sqrt(from * (highest / bandwidth));
    picture.append(
      svg("text", { class: "roof-name", x: px(label) - 8, y: py(label * bandwidth) - 8, "text-anchor": "end" }, `HBM ${(bandwidth).toFixed(2)} TB/s`),
    );
  }
  picture.append(lines, pointsOf(points, px, py));
  return picture;
}

function gridOf(x0, x1, y0, y1, px, py, width, height, margin) {
  const found = [];
  const named = (power) => (power >= 0 && power < 4 ? String(10 ** power) : `1e${power}`);
  for (let power = x0; power <= x1; power++) {
    const x = px(10 ** power);
    found.push(svg("line", { class: "grid", x1: x, x2: x, y1: margin.top, y2: height - margin.bottom }));
    found.push(svg("text", { class: "tick", x, y: height - margin.bottom + 14, "text-anchor": "middle" }, named(power)));
  }
  for (let power = y0; power <= y1; power++) {
    const y = py(10 ** power);
    found.push(svg("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y, y2: y }));
    found.push(svg("text", { class: "tick", x: margin.left - 6, y: y + 4, "text-anchor": "end" }, named(power)));
  }
  const middle = (margin.top + height - margin.bottom) / 2;
  found.push(
    svg("text", { class: "axis-name", x: (margin.left + width) / 2, y: height - 6, "text-anchor": "middle" }, "flops per byte"),
    svg("text", { class: "axis-name", transform: `translate(12,${middle}) rotate(-90)`, "text-anchor": "middle" }, "TFLOPS"),
  );
  return found;
}

function pointsOf(points, px, py) {
  const longest = points.reduce((most, { group }) => Math.max(most, group.total_dur_ps), 1);
  // Draw the largest points first, so that no point hides a smaller point.
  const ordered = [...points].sort((a, b) => b.group.total_dur_ps - a.group.total_dur_ps);
  const nodes = ordered.map(({ group, x, y }) =>
    svg("circle", {
      class: `point c-${group.bound === "compute" ? "compute_bound" : "memory_bound"}`,
      cx: px(x),
      cy: py(y),
      r: 3 + 15 * Math.sqrt(group.total_dur_ps / longest),
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
          `short of the roof by ${asTime(group.shortfall_ps)}`,
        ],
        go: () => tables.roofline.goTo(ordered[i].i),
      };
    },
    "groups below their roofs",
  );
  return host;
}
