// Draws a treemap of the live buffers by source line.

// Lays out a treemap in rows along the shorter side, keeping the parts nearly square. Takes parts
// [{value, …}], largest first, and returns [{part, x, y, w, h}].
function squarified(parts, x, y, w, h) {
  const placed = [];
  let rest = parts.filter((part) => part.value > 0);
  let left = rest.reduce((sum, part) => sum + part.value, 0);
  while (rest.length) {
    const short = Math.min(w, h);
    const scale = (w * h) / left;
    let n = 0;
    let sum = 0;
    let worst = Infinity;
    while (n < rest.length) {
      const more = sum + rest[n].value;
      const thickness = (more * scale) / short;
      const sides = [rest[0], rest[n]].map((part) => (part.value * scale) / thickness);
      const ratio = Math.max(...sides.map((side) => Math.max(side / thickness, thickness / side)));
      if (ratio > worst) break;
      [worst, sum, n] = [ratio, more, n + 1];
    }
    const thickness = (sum * scale) / short || 0;
    let along = 0;
    for (const part of rest.slice(0, n)) {
      const length = (part.value / sum) * short;
      placed.push(
        w >= h
          ? { part, x, y: y + along, w: thickness, h: length }
          : { part, x: x + along, y, w: length, h: thickness },
      );
      along += length;
    }
    if (w >= h) [x, w] = [x + thickness, w - thickness];
    else [y, h] = [y + thickness, h - thickness];
    left -= sum;
    rest = rest.slice(n);
  }
  return placed;
}

// Groups the buffers by source line.
function buffersByLine(answer) {
  const lines = new Map();
  answer.buffers.forEach((buffer, i) => {
    const name = buffer.source_inner ?? `(${buffer.kind}s without a line)`;
    if (!lines.has(name)) lines.set(name, { name, value: 0, parts: [] });
    const line = lines.get(name);
    line.value += buffer.bytes;
    line.parts.push({ value: buffer.bytes, buffer, i });
  });
  if (answer.tail.bytes) {
    const name = "(smaller buffers, not on this page)";
    lines.set(name, { name, value: answer.tail.bytes, parts: [{ value: answer.tail.bytes, buffer: null }] });
  }
  return [...lines.values()].sort((a, b) => b.value - a.value);
}

function drawTreemap(host, answer) {
  const lines = buffersByLine(answer);
  const chart = element("div", { class: "treemap" });
  host.append(chart);
  drawnByWidth(chart, (width) => {
    const height = Math.round(Math.max(220, Math.min(420, width * 0.35)));
    chart.style.height = `${height}px`;
    const frames = [];
    const cells = [];
    for (const { part: line, x, y, w, h } of squarified(lines, 0, 0, width, height)) {
      const frame = element("div", { class: "tree-line" }, element("span", {}, readable(shortLine(shortened(line.name, 80)))));
      placeAt(frame, x, y, w, h);
      frames.push(frame);
      const head = h > 40 && w > 50 ? 16 : 0;
      frame.classList.toggle("small", !head);
      for (const cell of squarified(line.parts, x + 1, y + 1 + head, w - 2, h - 2 - head)) {
        cells.push({ ...cell, line });
      }
    }
    const nodes = cells.map(({ part, x, y, w, h }) => {
      const { buffer } = part;
      const name = buffer ? (buffer.shape ?? buffer.hlo_op ?? buffer.kind) : "smaller buffers";
      const made = element(
        "div",
        { class: `cell m-${buffer?.kind ?? "rest"}`, "data-value": part.value },
        h > 15 ? element("span", {}, fitting(w - 10, readable(name))) : null,
      );
      placeAt(made, x, y, w, h);
      return made;
    });
    chart.replaceChildren(...frames, ...nodes);
    makeMarks(chart, nodes, (i) => cellMark(cells[i]), "buffers that are live at the peak");
  });
}

function placeAt(made, x, y, w, h) {
  Object.assign(made.style, { left: `${x}px`, top: `${y}px`, width: `${Math.max(0, w - 1)}px`, height: `${Math.max(0, h - 1)}px` });
}

function cellMark({ part, line }) {
  const { buffer, i } = part;
  if (!buffer) return { lines: [readable(line.name), asBytes(part.value)], go: null };
  return {
    lines: [
      shortened(readable(buffer.shape ?? buffer.hlo_op ?? "(no array)"), 120),
      `${asBytes(buffer.bytes)}, ${asPercent(buffer.pct_of_peak)} of the peak, ${buffer.kind}`,
      shortened(readable(buffer.hlo_op ?? ""), 100),
      shortened(readable(line.name), 120),
    ],
    go: () => tables.buffers.goTo(i),
  };
}

const MEMORY_KINDS = ["parameter", "output", "constant", "temporary"];

function memoryLegend(byKind) {
  return element(
    "ul",
    { class: "legend" },
    ...MEMORY_KINDS.map((kind) =>
      element("li", {}, element("span", { class: `swatch m-${kind}` }), `${kind} `, figure("bytes", byKind[kind])),
    ),
  );
}
