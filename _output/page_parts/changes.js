// Draws what changed since the baseline: the comparison of all steps, and one step of each side.

// Tables omit changes that are smaller than 1/LEAST_CHANGE of the step.
const LEAST_CHANGE = 1000;
const beforeColumn = column("before_ps", "before", "time");
const afterColumn = column("after_ps", "after", "time");
const deltaColumn = column("delta_ps", "change", "delta");
const deltaShareColumn = column("delta_pct", "change %", "change", { none: "nothing before" });
const noiseColumn = column("significant", "more than noise", "text", { value: ({ significant: is }) => (isUnknown(is) ? null : is ? "yes" : "no"), why: () => "not tested: the change is too small, or there are too few steps" });

function changes() {
  const found = ANSWERS.compare;
  if (!found) return;
  const place = element("section", { id: "changes" }, byId("title"));
  byId("lead").before(place);
  document.querySelector("nav").prepend(element("a", { href: "#changes" }, "Changes"));
  section("changes", element("h2", {}, "Before and after"), sidesOf(found), ...barsOfSides());
  const { before_ps: step } = found.totals.step_duration;
  // Omit small totals, such as overlap that consists of rounding errors.
  const isLarge = (total) => total && LEAST_CHANGE * Math.max(total.before_ps, total.after_ps) >= step;
  const totals = Object.entries(found.totals).filter(([, total]) => isLarge(total));
  addTable(
    "changes",
    "totals",
    totals.map(([name, total]) => ({ name, ...total })),
    [column("name", "mean over the steps", "text", { value: (row) => row.name.replaceAll("_", " ") }), beforeColumn, afterColumn, deltaColumn, deltaShareColumn, noiseColumn],
    { label: "totals" },
  );
  causesThatChanged();
  linesThatChanged(found);
  addTable(
    "changes",
    "changed-program",
    found.program_changes.rows,
    [
      column("what", "what", "text", { value: (row) => row.what.replaceAll("_", " ") }),
      column("name", "name", "text", { value: (row) => row.name ?? "" }),
      ...["before", "after"].map((side) => column(side, side, "text", { value: (row) => inWords(row[side], row.what), why: () => "only on the other side" })),
    ],
    { label: "the compiled program" },
  );
}

// Says which captures are compared.
function sidesOf(found) {
  const say = (side) => element("span", {}, nameElement(found[side].captures[0].profile_dir, 60), `; captures: ${found[side].n_captures}, steps: ${found[side].n_steps}`);
  return figures([["before", say("before")], ["after", say("after")]]);
}

// Draws both sides' budgets on the same scale.
function barsOfSides() {
  if (!BEFORE) return [noDrawing()];
  const sides = [["before", BEFORE], ["after", DATA]];
  const longest = Math.max(...sides.map(([, side]) => side.page.step_duration_ps), 1);
  return sides.flatMap(([name, side]) => {
    const bar = budgetBar(side);
    bar.style.width = `${(100 * side.page.step_duration_ps) / longest}%`;
    return [element("h3", {}, `${name}: step ${readable(side.page.step_name ?? "(all ops)")}, `, figure("time", side.page.step_duration_ps)), bar];
  });
}

function causesThatChanged() {
  if (!BEFORE) return;
  addTable(
    "changes",
    "changed-causes",
    DATA.changed_causes,
    [
      { ...lineColumn, value: (row) => row.source_user ?? row.before_source_user, node: (row) => lineElement({ source_user: row.source_user ?? row.before_source_user }) },
      deltaColumn,
      column("cause", "cause", "text", { value: causeName }),
      column("before_ps", "cost before", "time"),
      column("after_ps", "after", "time"),
      column("says", "what was seen", "text", { most: 600, wraps: true }),
    ],
    { label: "causes that appeared, disappeared or changed in cost between these two steps" },
  );
}

function linesThatChanged(found) {
  const { before_ps: step } = found.totals.step_duration;
  const rows = found.rows.filter((row) => LEAST_CHANGE * Math.abs(row.delta_ps) >= step);
  const n = found.rows.length - rows.length + found.tail.n_rows_omitted;
  addTable(
    "changes",
    "changed-lines",
    rows,
    [
      { ...lineColumn, node: (row) => lineElement({ source_inner: row.source_inner, agg_key: row.tf_op ?? row.agg_keys_after[0] ?? row.agg_keys_before[0] }) },
      deltaColumn,
      beforeColumn,
      afterColumn,
      noiseColumn,
      column("kind", "kind", "text"),
      column("matched_by", "matched by", "text", { value: (row) => row.matched_by.replaceAll("_", " ") }),
    ],
    { label: "lines", rest: n ? `${n} lines differ by less than 0.1 % of the step.` : "" },
  );
  addTable(
    "changes",
    "changed-files",
    found.by_file.filter((row) => LEAST_CHANGE * Math.abs(row.delta_ps) >= step),
    [column("file", "file", "text", { value: (row) => row.file ?? row.before_file ?? "(no source line)" }), deltaColumn, beforeColumn, afterColumn, noiseColumn],
    { label: "files" },
  );
  if (!rows.length) section("changes", element("p", { class: "absent" }, "No line differs by 0.1 % of the step or more."));
}

// Formats a property of a program as text, such as `n 4, bytes 1.000 KiB`.
function inWords(fact, name) {
  if (/bytes|memory|donation/.test(name)) return asBytes(fact);
  if (isUnknown(fact) || typeof fact !== "object") return fact;
  return Object.entries(fact).map(([part, value]) => `${part.replace(/_bytes$/, "").replaceAll("_", " ")} ${inWords(value, part) ?? "?"}`).join(", ");
}

const noDrawing = () => element("p", { class: "absent" }, "? The baseline is a record, which has no ops. Pass the capture instead to see its charts and causes.");

// Repeats a chart for the baseline's step below the chart for the page's step.
function alsoBefore(id, draw) {
  if (!ANSWERS.compare) return;
  const host = element("div");
  section(id, element("h3", {}, "Before the change"), host);
  if (BEFORE) draw(host);
  else host.append(noDrawing());
}
