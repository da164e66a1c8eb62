// Handles marks: parts of a chart that show a figure and link to a table row. Tab reaches one mark
// per chart, arrow keys move between marks, Enter or a click goes to the row, Escape hides the
// tooltip.

const tip = byId("tip");

function showTip(lines, x, y) {
  tip.replaceChildren(
    ...lines.filter(Boolean).map((line, i) => element("div", { class: i ? "" : "first" }, line)),
  );
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(x + 14, innerWidth - box.width - 8);
  const top = y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18;
  tip.style.left = `${Math.max(8, left) + scrollX}px`;
  tip.style.top = `${Math.max(8, top) + scrollY}px`;
}

const hideTip = () => (tip.hidden = true);

function tipAt(node, lines) {
  const box = node.getBoundingClientRect();
  showTip(lines, box.left + Math.min(box.width / 2, 40), Math.min(box.bottom, innerHeight) - 14);
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
});

// Turns nodes into marks: `of(i)` returns the tooltip's lines and the click action (or null).
function makeMarks(container, nodes, of, label) {
  container.setAttribute("role", "group");
  container.setAttribute("aria-label", label);
  nodes.forEach((node, i) => {
    node.setAttribute("tabindex", i ? "-1" : "0");
    node.classList.add("mark");
    const { lines, go } = of(i);
    node.setAttribute("role", go ? "button" : "img");
    node.setAttribute("aria-label", shortened(lines.join(", "), 300));
    node.addEventListener("mousemove", (event) => showTip(lines, event.clientX, event.clientY));
    node.addEventListener("mouseleave", hideTip);
    node.addEventListener("focus", () => {
      if (node.matches(":focus-visible")) tipAt(node, lines);
    });
    node.addEventListener("blur", hideTip);
    if (go) node.addEventListener("click", go);
    node.addEventListener("keydown", (event) => {
      if (go && (event.key === "Enter" || event.key === " ")) {
        event.preventDefault();
        go();
        return;
      }
      const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
      const to = { Home: 0, End: nodes.length - 1 }[event.key] ?? i + (steps[event.key] ?? NaN);
      if (nodes[to]) {
        event.preventDefault();
        node.setAttribute("tabindex", "-1");
        nodes[to].setAttribute("tabindex", "0");
        nodes[to].focus();
      }
    });
  });
}

// Draws a chart to the width of its container, and again when the width changes, for example when a
// phone is rotated. Reading a width makes the browser lay out the page, so all initial widths are
// read together.
const drawings = [];

function drawnByWidth(host, draw) {
  drawings.push({ host, draw, width: 0 });
}

function drawAll() {
  const widths = drawings.map(({ host }) => Math.floor(host.clientWidth));
  drawings.forEach((drawing, i) => {
    if (widths[i] !== drawing.width && widths[i] > 0) drawing.draw((drawing.width = widths[i]));
  });
}

function drawWhenWidthsChange() {
  // Draw later, because drawing can change the observed width.
  const observer = new ResizeObserver(() => requestAnimationFrame(drawAll));
  for (const { host } of drawings) observer.observe(host);
}
