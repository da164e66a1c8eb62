"""Test the page in a browser: charts show the numbers in the JSON; mouse and keyboard work."""

from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

import compute_breakdown
from tests.analysis.causes.test_pause_between_steps import FEED
from tests.analysis.causes.test_pause_between_steps import device as pausing
from tests.analysis.causes.test_pause_between_steps import thread as host_thread
from tests.builders import browser
from tests.builders.xspace import Space, encode, op, trace
from tests.harness import BEFORE, DEMO, answer
from tests.modes.small_steps import STEP, kernel, leaf
from tests.modes.test_idle import host
from tests.modes.test_kernel import traced
from tests.modes.test_page import HOSTILE, captured_at, data_of, hostile_trace, page_of_demo

Json = dict[str, Any]

# For each row of a table: its index in the JSON, then its exact numbers.
TABLE = """[...document.querySelectorAll('#%s-table tr[data-row]')].map((row) =>
    [Number(row.dataset.row), ...[...row.querySelectorAll('[data-value]')].map((element) =>
        JSON.parse(element.dataset.value))])"""
BOXES = """[...document.querySelectorAll('.box')].map((box) =>
    ({name: box.textContent, value: Number(box.dataset.value), depth: Number(box.dataset.depth),
      found: box.classList.contains('found'), width: box.getBoundingClientRect().width}))"""
TEXTS = "[...document.querySelectorAll('%s')].map((element) => element.innerText)"
# Controls and headings that a screen reader cannot name.
NAMELESS = """[...document.querySelectorAll('button, th, input, select, summary, a, [role=button],'
    + ' [role=slider], [role=group], [role=treegrid]')].filter((node) => !node.innerText &&
    !node.getAttribute('aria-label') && !node.labels?.length).map((node) => node.outerHTML)"""
# Marks whose visible text is not a part of the name that a screen reader says.
RENAMED = """[...document.querySelectorAll('.part')].filter((node) =>
    !node.getAttribute('aria-label').includes(node.innerText)).map((node) => node.innerText)"""
# Elements that can only be read by scrolling sideways, or are cut off.
CLIPPED = """[...document.querySelectorAll('nav, main *')].filter((node) =>
    node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 0 &&
    getComputedStyle(node).overflowX !== 'visible' &&
    !node.closest('.flame, .bar, .lane, .unseen')).map((node) =>
        `${node.closest('section')?.id} ${node.className}`)"""
# Levels of headings that skip a level.
SKIPPED = """[...document.querySelectorAll('h1, h2, h3')].filter((node, i, all) =>
    i && node.tagName[1] - all[i - 1].tagName[1] > 1).map((node) => node.innerText)"""
ACTIVE = "document.activeElement.closest('tr, div, circle, button, input')"


def setUpModule() -> None:
    """Start one browser with one tab for all tests."""
    if browser.PROGRAM:
        manager = browser.browser()
        InBrowser.tab = manager.__enter__()
        unittest.addModuleCleanup(manager.__exit__, None, None, None)


@unittest.skipUnless(browser.PROGRAM, f"needs a browser: one of {', '.join(browser.NAMES)}")
class InBrowser(unittest.TestCase):
    """Show pages in the browser tab that all tests share."""

    batch = "browser"
    takes_seconds = 20
    tab: browser.Browser
    folder: Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.show_size(1300)

    @classmethod
    def show_size(cls, width: int, height: int = 900) -> None:
        cls.tab.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def tearDown(self) -> None:
        """Check that there was no error and no network request."""
        for event in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.assertEqual(self.tab.seen(event), [])
        requests = self.tab.seen("Network.requestWillBeSent")
        asked = [request["request"]["url"] for request in requests]
        self.assertEqual([url for url in asked if not url.startswith("file:")], [])
        self.assertLessEqual(len(asked), 1)

    def show(self, html: bytes) -> Json:
        path = self.folder / "step.html"
        path.write_bytes(html)
        self.tab.open(path)
        return data_of(html)

    def show_page(self, profile: bytes, *options: str) -> Json:
        out = self.folder / "made.html"
        answer(profile, "page", "--out", str(out), *options)
        return self.show(out.read_bytes())

    def table(self, name: str) -> list[list[float | None]]:
        rows: list[list[float | None]] = self.tab.value(TABLE % name)
        return rows

    def shown_rows(self, name: str) -> list[int]:
        return [int(row[0] or 0) for row in self.table(name)]

    def boxes(self) -> list[Json]:
        found: list[Json] = self.tab.value(BOXES)
        return found


class Demo(InBrowser):
    data: Json

    def setUp(self) -> None:
        self.data = self.show(page_of_demo()[1])

    def answers(self, mode: str) -> Json:
        of_mode: Json = self.data["answers"][mode]
        return of_mode

    def test_tables_show_the_numbers_in_the_json(self) -> None:
        names = {
            "causes": ("bottleneck", "causes", "rank gain_ps gain_pct_of_step"),
            "findings": ("bottleneck", "findings", "rank lost_ps dur_ps hideable_ps pct_of_step "
                         "n_executions"),
            "lines": ("by_source", "groups", "total_dur_ps pct_of_step n_executions flops_sum "
                      "hbm_bytes_sum"),
            "roofline": ("roofline", "groups", "shortfall_per_op_ps total_dur_ps roofline_util "
                         "arithmetic_intensity mfu hbm_util"),
            "buffers": ("memory", "buffers", "rank bytes pct_of_peak"),
            "ops": ("by_op", "ops", "rank lost_ps total_dur_ps pct_of_step n_executions "
                    "achieved_tflops achieved_gbps"),
            "steps": ("summary", "steps", "index duration_ps n_xla_ops_events"),
            "layers": ("by_scope", "scopes", "total_dur_ps self_dur_ps pct_of_step n_executions"),
            "collectives": ("program", "collectives", "n_instructions n_executions sync_dur_ps "
                            "wait_dur_ps payload_bytes"),
            "parameters": ("program", "parameters", "number bytes"),
            "inside": ("kernel", "kernels", "rank lost_ps total_dur_ps pct_of_step n_executions "
                       "waiting_ps computing_ps vmem_used_bytes"),
        }  # fmt: skip
        for table, (mode, rows, columns) in names.items():
            self.tab.value(f"document.querySelector('#{table}-table .more').click()")
            shown = self.table(table)
            with self.subTest(table=table):
                self.assertEqual(
                    [row[1 : 1 + len(columns.split())] for row in shown],
                    [[row[name] for name in columns.split()] for row in self.answers(mode)[rows]],
                )

    def test_table_of_classes_shows_the_classes_with_time(self) -> None:
        """Test that all idle time counts as lost, although its row in the JSON has no loss."""
        names = "dur_ps pct_of_step at_roof_ps lost_ps hideable_ps".split()
        rows = [row for row in self.answers("bottleneck")["budget"] if row["dur_ps"]]
        idle = next(row for row in rows if row["class"] == "idle")
        self.assertIsNone(idle["lost_ps"])
        idle["lost_ps"] = idle["dur_ps"]
        expected = [[row[name] for name in names] for row in rows]
        self.assertEqual([row[1:] for row in self.table("budget")], expected)

    def test_charts_show_the_numbers_in_the_json(self) -> None:
        bottleneck, comm = self.answers("bottleneck"), self.answers("comm")
        budget = sorted(row["dur_ps"] for row in bottleneck["budget"] if row["dur_ps"] > 0)
        values = {
            "#budget .bar .part": budget,
            # Gaps of less than 0.05 % of the step are not drawn.
            ".lane .gap": sorted(
                gap["dur_ps"]
                for gap in self.answers("idle")["gaps"]
                if gap["dur_ps"] >= self.data["page"]["step_duration_ps"] / 2000
            ),
            "#memory .bar .part": sorted(
                n_bytes for n_bytes in self.answers("memory")["by_kind"].values() if n_bytes
            ),
            ".column": sorted(step["duration_ps"] for step in self.answers("summary")["steps"]),
            ".track > div": sorted(
                sums[part]
                for sums in comm["totals"]["by_collective"].values()
                for part in ("sync_dur_ps", "wait_dur_ps")
                if sums[part]
            ),
        }
        for selector, expected in values.items():
            with self.subTest(chart=selector):
                self.assertEqual(
                    self.tab.value(
                        f"[...document.querySelectorAll('{selector}')].map((element) =>"
                        " Number(element.dataset.value)).sort((a, b) => a - b)"
                    ),
                    expected,
                )
        self.assert_points_of_the_roofline()
        widths = self.tab.value(
            "[...document.querySelectorAll('#budget .bar .part')].map((part) => part.style.width)"
        )
        self.assertAlmostEqual(sum(float(width.rstrip("%")) for width in widths), 100, 3)

    def assert_points_of_the_roofline(self) -> None:
        """Check that the chart has a point for every row of at least 0.5 % of the step."""
        groups = self.answers("roofline")["groups"]
        shown = self.tab.value(
            "[...document.querySelectorAll('.roofline .point')].map((point) =>"
            " Number(point.dataset.value))"
        )
        large = [
            group["roofline_util"]
            for group in groups
            if group["total_dur_ps"] >= self.data["page"]["step_duration_ps"] / 200
        ]
        self.assertTrue(0 < len(large) <= len(shown) < len(groups))
        self.assertLessEqual(set(large), set(shown))
        self.assertLessEqual(set(shown), {group["roofline_util"] for group in groups})
        n_out = len(groups) - len(shown)
        says = self.tab.value("document.querySelector('.roofline').innerText")
        self.assertIn(f"{n_out} more points, each less than 0.5 % of the step", says)

    def test_header_shows_version_file_device_chip_and_step(self) -> None:
        head = self.tab.value("document.querySelector('header').textContent")
        version = compute_breakdown.__version__
        for text in (version, "t1v-n-0.xplane.pb.gz", "/device:TPU:0", "TPU v7x", "101"):
            self.assertIn(text, head)

    def test_top_of_the_page_shows_headline_causes_and_losses(self) -> None:
        found = self.answers("bottleneck")
        self.assertEqual(self.tab.value(TEXTS % "h1"), [found["headline"]])
        shown = self.tab.value(
            "[...document.querySelectorAll('.item-bar div')].map((bar) =>"
            " [Number(bar.dataset.value), parseFloat(bar.style.width)])"
        )
        causes = [[cause["gain_ps"], cause["gain_pct_of_step"]] for cause in found["causes"][:3]]
        self.assertEqual(shown[:3], causes)
        unknown = found["kernels_of_unknown_cost"]
        losses = [row["lost_ps"] or 0 for row in found["findings"]]
        losses += [row["dur_ps"] for row in unknown]
        self.assertEqual([ps for ps, _ in shown[3:]], sorted(losses, reverse=True)[:3])
        helps = self.tab.value(TEXTS % ".items p")
        # Causes that share advice show it once.
        advice = list(dict.fromkeys(cause["what_helps"] for cause in found["causes"][:3]))
        self.assertLess(len(advice), 3)
        self.assertEqual(helps[: len(advice)], advice)
        self.assertEqual(len(set(helps)), len(helps))
        self.tab.click(".items li:nth-child(2) button")
        self.assertEqual(self.tab.value(f"{ACTIVE}.closest('.table').id"), "causes-table")
        self.assertEqual(self.tab.value(f"{ACTIVE}.dataset.row"), "1")

    def test_warnings_are_visible_and_other_notes_folded(self) -> None:
        n = self.data["n_warnings"]
        self.assertTrue(0 < n < len(self.data["notes"]))
        self.assertEqual(self.tab.value(TEXTS % ".warnings li"), self.data["notes"][:n])
        folded = TEXTS % "#notes details[open] li"
        self.assertEqual(self.tab.value(folded), [])
        self.tab.click("#notes summary")
        self.assertEqual(self.tab.value(folded), self.data["notes"][n:])

    def test_navigation_marks_the_current_section(self) -> None:
        current = TEXTS % "nav a[aria-current]"
        for link, name in (("#memory", "Memory"), ("#ops", "Ops")):
            self.tab.click(f"nav a[href='{link}']")
            for _ in range(50):
                if self.tab.value(current) == [name]:
                    break
            self.assertEqual(self.tab.value(current), [name])

    def test_labels_fit_or_end_in_an_ellipsis(self) -> None:
        """Check that labels fit, are left out, or end in an ellipsis."""
        cut = self.tab.value(
            "[...document.querySelectorAll('.part, .box, .frame')].filter((box) =>"
            " box.innerText && box.scrollWidth > box.clientWidth + 1 &&"
            " getComputedStyle(box).textOverflow !== 'ellipsis').map((box) => box.innerText)"
        )
        self.assertEqual(cut, [])

    def test_tables_can_be_sorted_with_mouse_and_keyboard(self) -> None:
        rows = self.answers("bottleneck")["findings"]
        head = "#findings-table th:nth-child(4) button"
        self.tab.click(head)
        by_time = sorted(range(len(rows)), key=lambda i: -rows[i]["dur_ps"])
        self.assertEqual(self.shown_rows("findings"), by_time[:12])
        self.assertEqual(self.sorting(4), "descending")
        self.tab.press("Enter")
        self.assertEqual(self.sorting(4), "ascending")
        by_time = sorted(range(len(rows)), key=lambda i: rows[i]["dur_ps"])
        self.assertEqual(self.shown_rows("findings"), by_time[:12])
        # Unknown values come last in ascending and in descending order.
        self.tab.click("#findings-table .more")
        for _ in range(2):
            self.tab.click("#findings-table th:nth-child(3) button")
            lost = [rows[i]["lost_ps"] for i in self.shown_rows("findings")]
            n_known = len(lost) - lost.count(None)
            self.assertTrue(0 < n_known < len(rows))
            self.assertEqual(lost[n_known:], [None] * (len(rows) - n_known))

    def sorting(self, place: int) -> Any:
        head = f"#findings-table th:nth-child({place})"
        return self.tab.value(f"document.querySelector('{head}').getAttribute('aria-sort')")

    def test_tables_can_be_filtered_by_text_and_class(self) -> None:
        rows = self.answers("bottleneck")["findings"]
        self.tab.click("#findings-table input")
        self.tab.type("ATTENTION.PY:15 broadcast")
        wanted = [
            i
            for i, row in enumerate(rows)
            if "attention.py:15" in json.dumps(row) and "broadcast" in "\n".join(texts_of(row))
        ]
        self.assertTrue(0 < len(wanted) < 12)
        self.assertEqual(self.shown_rows("findings"), wanted)
        self.tab.press("Escape")
        self.assertEqual(self.shown_rows("findings"), list(range(12)))
        self.tab.focus("#findings-table select")
        self.tab.type("d")
        self.tab.value(
            "(() => { const all = document.querySelector('#findings-table select');"
            " all.value = 'data_movement'; all.dispatchEvent(new Event('change')); })()"
        )
        moved = [i for i, row in enumerate(rows) if row["class"] == "data_movement"]
        self.assertEqual(self.shown_rows("findings"), moved[:12])

    def test_opened_row_shows_all_fields(self) -> None:
        fields = "[...document.querySelectorAll('#findings-table .detail dt')].map((term) => %s)"
        self.tab.click('#findings-table tr[data-row="1"]')
        named = list(self.answers("bottleneck")["findings"][1])
        self.assertEqual(self.tab.value(fields % "term.dataset.name"), [*named, "source_stack"])
        labels = self.tab.value(fields % "term.textContent")
        self.assertLessEqual({"time", "lost", "line", "shape", "stack", "what helps"}, set(labels))
        self.assertEqual([label for label in labels if "_" in label], [])
        self.tab.press("ArrowDown")
        self.tab.press("Enter")
        self.assertEqual(self.tab.value(f"{ACTIVE}.dataset.row"), "2")
        self.assertEqual(self.tab.value(f"{ACTIVE}.getAttribute('aria-expanded')"), "true")
        self.tab.press("Escape")
        self.assertEqual(self.tab.value(fields % "term.dataset.name"), [])

    def test_click_on_a_mark_in_a_chart_opens_its_row(self) -> None:
        opened = "document.querySelector('#%s-table tr[aria-expanded=true]')?.dataset.row"
        for mark, table in (
            (".gap", "idle"),
            (".roofline .point", "roofline"),
            (".column", "steps"),
            (".strip-holder", "ops"),
        ):
            with self.subTest(mark=mark):
                self.tab.click(mark)
                self.assertIsNotNone(self.tab.value(opened % table))
        self.tab.hover(".bar .part")
        self.assertIn("2.925 ms", self.tab.value("document.querySelector('#tip').innerText"))
        self.tab.click(".bar .part")
        collective = [
            i
            for i, row in enumerate(self.answers("bottleneck")["findings"])
            if row["class"] == "collective"
        ]
        self.assertEqual(self.shown_rows("findings"), collective[:12])

    def test_marks_in_charts_respond_to_the_keyboard(self) -> None:
        self.tab.focus(".bar .part")
        self.tab.press("ArrowRight")
        self.assertEqual(self.tab.value(f"{ACTIVE}.dataset.name"), "data movement")
        self.assertIn("data movement", self.tab.value("document.querySelector('#tip').innerText"))
        self.tab.press("Escape")
        self.assertTrue(self.tab.value("document.querySelector('#tip').hidden"))
        self.tab.press("End")
        self.tab.press("Enter")
        self.assertEqual(self.tab.value(f"{ACTIVE}.closest('section').id"), "idle")
        self.tab.focus(".strip-holder")
        self.tab.press("ArrowRight", shift=True)
        self.assertEqual(self.tab.value(f"{ACTIVE}.getAttribute('aria-valuenow')"), "20")
        self.tab.press("Enter")
        strip = self.data["strip"]
        who = strip["ops"][strip["longest"][20]]["hlo_op"]
        rows = self.answers("by_op")["ops"]
        self.assertEqual(rows[int(self.tab.value(f"{ACTIVE}.dataset.row"))]["hlo_op"], who)

    def test_widths_in_the_flame_graph_are_proportional_to_time(self) -> None:
        total = self.data["page"]["totals"]["non_while_duration_ps_sum"]
        boxes = self.boxes()
        self.assertEqual((boxes[0]["value"], boxes[0]["depth"]), (total, 0))
        self.assertEqual(sum(box["value"] for box in boxes if box["depth"] == 1), total)
        self.assert_widths_are_shares(boxes)
        of_scopes = self.answers("by_scope")
        self.assertEqual(boxes[0]["value"], total)
        outer = sorted(box["value"] for box in boxes if box["depth"] == 1)
        expected = [of_scopes["no_scope"]["dur_ps"], of_scopes["scopes"][0]["total_dur_ps"]]
        self.assertEqual(outer, sorted(expected))
        named = {(row["name"], row["total_dur_ps"]) for row in of_scopes["scopes"] if row["depth"]}
        # Narrow boxes show no name; a box for a chain of scopes shows the names of all of them.
        drawn = {
            (box["name"].split(" → ")[-1], box["value"])
            for box in boxes
            if box["depth"] > 1 and box["name"]
        }
        self.assertTrue(drawn)
        self.assertLessEqual(drawn, named)
        self.tab.click("input[value=paths]")
        boxes = self.boxes()
        self.assertEqual((boxes[0]["value"], boxes[0]["depth"]), (total, 0))
        self.assert_widths_are_shares(boxes)
        # All stacks begin with the same frames, so the flame graph draws them as one box.
        self.assertIn("train.py:42 → … → train.py:42", [box["name"] for box in boxes])

    def assert_widths_are_shares(self, boxes: list[Json]) -> None:
        for box in boxes:
            share = box["value"] / boxes[0]["value"]
            self.assertAlmostEqual(box["width"], boxes[0]["width"] * share, delta=0.1)

    def test_flame_graph_can_be_zoomed_with_mouse_and_keyboard(self) -> None:
        whole = self.boxes()
        width = whole[0]["width"]
        inner = next(i for i, box in enumerate(whole) if box["width"] < width / 2)
        self.tab.click(f".box:nth-child({inner + 1})")
        zoomed = self.boxes()
        wide = [box for box in zoomed if abs(box["width"] - width) < 0.5]
        self.assertIn(whole[inner]["value"], [box["value"] for box in wide])
        says = self.tab.value("document.querySelector('.inspector').innerText")
        self.assertIn(whole[inner]["name"].removeprefix("…/"), says)
        self.tab.press("Escape", times=20)
        self.assertEqual(self.boxes(), whole)
        # The keyboard zooms the flame graph, too.
        for _ in range(whole[inner]["depth"]):
            self.tab.press("ArrowDown")
        self.tab.press("ArrowRight")
        self.tab.press("ArrowLeft")
        self.tab.press("ArrowUp")
        self.tab.press("ArrowDown")
        self.tab.press("Enter")
        self.assertLess(self.boxes()[-1]["value"], whole[0]["value"])
        self.tab.click("#flame .toolbar button")
        self.assertEqual(self.boxes(), whole)
        self.tab.press("Enter")
        self.tab.click(".box:nth-child(3)")
        self.tab.click(".inspector button")
        self.assertEqual(self.tab.value(f"{ACTIVE}.closest('section').id"), "layers")

    def test_controls_headings_and_charts_have_names(self) -> None:
        self.assertEqual(self.tab.value(NAMELESS), [])
        self.assertEqual(self.tab.value(RENAMED), [])
        self.assertEqual(self.tab.value(SKIPPED), [])

    def test_rows_that_open_are_rows_of_a_tree(self) -> None:
        """Check that each row is in a treegrid, because other rows cannot have `aria-expanded`."""
        self.tab.click("#findings-table tr[data-row='0']")
        roles = self.tab.value(
            "[...new Set([...document.querySelectorAll('.table tr')].map((row) => [row,"
            " row.parentNode, row.closest('table'), ...row.children].map((node) =>"
            " node.getAttribute('role')).filter((role, i, all) => all.indexOf(role) === i)"
            ".join(' ')))]"
        )
        self.assertEqual(
            roles, ["row rowgroup treegrid columnheader", "row rowgroup treegrid gridcell"]
        )

    def test_nothing_is_cut_off_in_narrow_and_wide_windows(self) -> None:
        self.addCleanup(self.show_size, 1300)
        cards = {}
        for width in (390, 641, 800, 1000, 1100, 1200, 1280, 2200):
            self.show_size(width)
            self.tab.open(self.folder / "step.html")
            with self.subTest(width=width):
                over = self.tab.value("document.documentElement.scrollWidth - innerWidth")
                self.assertLessEqual(over, 0)
                self.assertEqual(self.tab.value(CLIPPED), [])
            cards[width] = self.tab.value("document.querySelectorAll('.cards').length")
        # The narrower the window, the more tables are cards.
        self.assertEqual(list(cards.values()), sorted(cards.values(), reverse=True))
        self.assertEqual((cards[1280], cards[2200]), (0, 0))
        self.assertTrue(0 < cards[1000] < cards[390])

    def test_charts_are_drawn_again_when_the_width_changes(self) -> None:
        self.addCleanup(self.show_size, 1300)
        self.show_size(390)
        self.tab.open(self.folder / "step.html")
        narrow = self.boxes()[0]["width"]
        self.show_size(1300)
        self.tab.value("new Promise((done) => setTimeout(done, 100))")
        for _ in range(50):
            if self.boxes()[0]["width"] > 2 * narrow:
                break
        self.assertGreater(self.boxes()[0]["width"], 2 * narrow)


def texts_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in texts_of(inner)]
    return [str(value)]


class OtherPages(InBrowser):
    def test_hostile_names_remain_text(self) -> None:
        data = self.show_page(hostile_trace())
        self.assertNotEqual(self.tab.value("document.title"), "owned")
        self.assertEqual(self.tab.value("document.querySelectorAll('main img, main b').length"), 0)
        scripts = self.tab.value("document.querySelectorAll('script').length")
        self.assertEqual(scripts, 2)
        self.tab.value("document.querySelector('#ops-table .more').click()")
        self.assertEqual(len(self.shown_rows("ops")), len(data["answers"]["by_op"]["ops"]))
        seen = self.tab.value("document.querySelector('main').innerText")
        self.assertIn("<img src=x onerror", seen)
        # Invisible characters are shown as escapes.
        self.assertIn("\\u202egnp.py", seen)
        self.assertFalse({"\u202e", "\u2066", "\u200f", "\ufeff", "\u0007"} & set(seen))
        # The page's own script still works.
        self.tab.click('#ops-table tr[data-row="3"]')
        self.tab.click("input[value=scopes]")
        for name in HOSTILE:
            self.tab.click("#flame input[type=search]")
            self.tab.type(name[:50])
            self.tab.press("Escape")
        self.tab.hover(".strip-holder")

    def show_comparison(self, after: bytes | Path, baseline: bytes | Path) -> Json:
        if isinstance(baseline, bytes):
            (self.folder / "before.xplane.pb").write_bytes(baseline)
            baseline = self.folder / "before.xplane.pb"
        out = self.folder / "made.html"
        answer(after, "page", "--out", str(out), "--baseline", str(baseline))
        return self.show(out.read_bytes())

    def test_comparison_shows_the_numbers_in_the_json(self) -> None:
        data = self.show_comparison(DEMO, BEFORE)
        found = data["answers"]["compare"]
        self.assertEqual(self.tab.value(TEXTS % "h1"), [found["headline"]])
        columns = ("before_ps", "after_ps", "delta_ps", "delta_pct")
        totals = [
            [total[name] for name in columns]
            for total in found["totals"].values()
            if total and total["after_ps"] >= found["totals"]["step_duration"]["after_ps"] / 999
        ]
        self.assertEqual([row[1:] for row in self.table("totals")], totals)
        least = found["totals"]["step_duration"]["before_ps"] / 1000
        lines = [
            [row[name] for name in ("delta_ps", "before_ps", "after_ps")]
            for row in found["rows"]
            if abs(row["delta_ps"]) >= least
        ]
        self.assertEqual([row[1:] for row in self.table("changed-lines")], lines)
        text = self.tab.value("document.querySelector('main').innerText")
        self.assertIn("The baseline is a record", text)

    def test_list_of_causes_begins_with_the_cause_in_the_headline(self) -> None:
        """List a cause with confidence `seen` before a larger cause that is only `likely`."""
        waits = [("ep_wait_in", 0, 40), ("ep_run_kernel", 40, 100)]
        data = self.show_page(traced([kernel(0, 100)], waits))
        found = data["answers"]["bottleneck"]["causes"]
        seen = {**found[0], "rank": 2, "gain_pct_of_step": 40}
        likely = {**seen, "rank": 1, "confidence": "likely", "cause": "resharding"}
        data["answers"]["bottleneck"]["causes"] = [likely, seen]
        html = (self.folder / "step.html").read_text()
        before, _, rest = html.partition('id="data">')
        shown = before + 'id="data">' + json.dumps(data) + rest[rest.index("</script>") :]
        self.show(shown.encode())
        names = self.tab.value(TEXTS % ".items:first-child button")
        self.assertEqual(names, ["kernel waits for input", "probably resharding"])
        self.tab.click(".items:first-child li button")
        self.assertEqual(self.tab.value(f"{ACTIVE}.dataset.row"), "1")

    def test_captures_before_and_after_have_the_same_charts(self) -> None:
        data = self.show_comparison(
            trace([leaf(0, 30, tf_op="jit(f)/a/add:")], [("s", 0, 40)]),
            trace([leaf(0, 20, tf_op="jit(f)/a/add:")], [("s", 0, 20)]),
        )
        self.assertEqual(data["before"]["page"]["step_duration_ps"], 20)
        text = self.tab.value("document.querySelector('main').innerText")
        self.assertNotIn("The baseline is a record", text)
        bars = "[...document.querySelectorAll('#changes .bar')].map((bar) => bar.style.width)"
        self.assertEqual(self.tab.value(bars), ["50%", "100%"])
        values = (
            "[...document.querySelectorAll('#changes .part')].map((part) => +part.dataset.value)"
        )
        self.assertEqual(self.tab.value(values), [20, 30, 10])
        for chart in (".strip", ".flame"):
            count = f"document.querySelectorAll('main {chart}').length"
            self.assertEqual(self.tab.value(count), 2)
        self.assertEqual({box["value"] for box in self.boxes()}, {20, 30})
        self.assertEqual(
            [self.tab.value(wrong) for wrong in (NAMELESS, CLIPPED, SKIPPED)], [[]] * 3
        )
        # A click on a chart of the baseline opens no row.
        self.tab.click("#changes .bar .part")
        self.tab.click("#budget > div:last-child .strip-holder")
        self.tab.click("#flame > div:last-child .box")
        self.assertEqual(self.tab.value("document.querySelectorAll('tr.detail').length"), 0)

    def test_hostile_names_in_a_comparison_remain_text(self) -> None:
        data = self.show_comparison(hostile_trace(), hostile_trace(30))
        self.assertTrue(data["answers"]["compare"]["rows"])
        self.assertNotEqual(self.tab.value("document.title"), "owned")
        self.assertEqual(self.tab.value("document.querySelectorAll('main img, main b').length"), 0)
        seen = self.tab.value("document.querySelector('#changes').innerText")
        self.assertIn("<!--<script>", seen)
        self.assertFalse({"\u202e", "\u2066", "\u200f", "\ufeff", "\u0007"} & set(seen))
        self.tab.click('#changed-lines-table tr[data-row="1"]')

    def test_bar_of_a_kernel_shows_its_regions(self) -> None:
        regions = [("ep_wait_in", 0, 60), ("ep_run_kernel", 60, 90), ("<b>", 65, 70)]
        self.show_page(traced([kernel(0, 100), kernel(100, 10, "other.1")], regions))
        drawn = self.tab.value(
            "[...document.querySelectorAll('#kernels .track > div')].map((part) =>"
            " [Number(part.dataset.value), part.style.width, part.classList.contains('hatched')])"
        )
        expected = [[60, True], [25, False], [5, False], [10, False]]
        self.assertEqual([[value, waits] for value, _, waits in drawn], expected)
        self.assertEqual([width for _, width, _ in drawn], ["60%", "25%", "5%", "10%"])
        shown = [row[1:3] for row in self.table("regions")]
        self.assertEqual(shown, [[60, 60], [25, 30], [5, 5]])

    def test_small_sections_are_folded_until_they_are_visited(self) -> None:
        self.show_page(trace([leaf(0, 996), op("c", "copy", 996, 4)], [("s", 0, 1000)]))
        folded = "[...document.querySelectorAll('section:has(details.folded:not([open]))')]"
        names = f"{folded}.map((section) => section.id)"
        self.assertEqual(self.tab.value(names), ["comm", "idle", "moves"])
        self.tab.click("nav a[href='#moves']")
        self.assertEqual(self.tab.value(names), ["comm", "idle"])
        self.assertEqual(
            self.tab.value(TEXTS % "#moves summary .muted"), ["4 ps, less than 0.5 % of the step"]
        )

    def tiles(self) -> dict[str, str]:
        """Return the figures of the summary by label."""
        texts: list[str] = self.tab.value(TEXTS % "#lead .figures > div")
        return {name: value for name, _, value in (text.partition("\n") for text in texts)}

    def test_idle_time_is_judged_by_the_period(self) -> None:
        """Show a pause of 100 ps in a period of 200 ps before the 10 ps in a step of 100 ps."""
        ops = [leaf(start, 90) for start in (0, 200, 400)]
        self.show_page(trace(ops, [(str(i), 200 * i, 100) for i in range(3)]))
        idle = "50.0 % (100 ps) between steps, 5.0 % (10 ps) in the step"
        self.assertEqual(self.tiles()["idle"], idle)
        shown = self.tab.value(TEXTS % "#idle .figures > div:first-child")
        self.assertEqual(shown, ["between steps\n100 ps"])
        self.show_page(trace([leaf(0, 90)], [("0", 0, 100)]))
        self.assertEqual(self.tiles()["idle"], "10.0 % (10 ps)")

    def test_period_is_drawn_with_the_frames_of_the_host_above_the_pause(self) -> None:
        """Draw a step of 80 ms and a pause of 20 ms; the host's frame takes 94 of the 100 ms."""
        planes = [pausing(), host(host_thread((FEED, 5, 99)))]
        self.show_page(encode(Space(planes)), "--step", "0")
        drawn = self.tab.value(
            "[...document.querySelectorAll('.frame')].map((frame) => [frame.innerText,"
            " frame.style.left, frame.style.width, Number(frame.dataset.value) / 1e9])"
        )
        self.assertEqual(
            drawn,
            [
                ["feed.py:17 get_batch", "5%", "94%", 94],
                ["step 0, this page's", "0%", "80%", 80],
                ["pause 20.00 ms", "80%", "20%", 20],
            ],
        )
        self.tab.click(".frame[role=button]")
        self.assertEqual(self.tab.value(f"{ACTIVE}.closest('.table').id"), "causes-table")
        self.show_page(trace([leaf(0, 90)], [("0", 0, 100)]))
        self.assertEqual(self.tab.value("document.querySelectorAll('.frame').length"), 0)

    def test_pause_after_every_second_step_is_a_tile(self) -> None:
        """Show the mean period of 120 ps, its median of 100 ps, and the mean pause of 20 ps."""
        steps = [(str(i), start, 100) for i, start in enumerate((0, 100, 240, 340, 480))]
        self.show_page(trace([leaf(start, 100) for _, start, _ in steps], steps))
        tiles = self.tiles()
        self.assertEqual(tiles["period"], "120 ps, median 100 ps")
        self.assertEqual(tiles["idle"], "16.7 % (20 ps) after every second step, none in the step")

    def test_section_about_idle_time_is_open_if_the_device_pauses(self) -> None:
        ops = [leaf(start, 1000) for start in (0, 1500)]
        self.show_page(trace(ops, [("0", 0, 1000), ("1", 1500, 1000)]))
        folded = "document.querySelector('#idle > details.folded') !== null"
        self.assertFalse(self.tab.value(folded))
        self.show_page(
            trace([leaf(0, 1000), leaf(1001, 1000)], [("0", 0, 1000), ("1", 1001, 1000)])
        )
        self.assertTrue(self.tab.value(folded))

    def test_lower_bound_of_the_mfu_is_called_a_lower_bound(self) -> None:
        data = self.show(page_of_demo()[1])
        found = data["answers"]["bottleneck"]
        least, recomputing = (100 * found[f"{name}_at_least"] for name in ("mfu", "hfu"))
        says = f"at least {least:.1f} %, or {recomputing:.1f} % with recomputation"
        self.assertEqual(self.tiles()["MFU"], says)
        self.show_page(trace([leaf(0, 90)], [("0", 0, 100)]))
        self.assertEqual(self.tiles()["MFU"], "?")

    def test_time_of_the_capture_is_shown(self) -> None:
        shown = "document.querySelector('#product').innerText"
        self.show_page(captured_at(1783579579390989132))
        self.assertIn("captured 2026-07-09 06:46 UTC", self.tab.value(shown))
        self.show_page(captured_at(None))
        self.assertIn("captured ?", self.tab.value(shown))

    def test_missing_parts_of_small_captures_show_the_reason(self) -> None:
        self.show_page(trace([leaf(0, 0)], STEP))
        page = self.tab.value("document.querySelector('main').innerText")
        self.assertIn("No answer (no_program): the capture has no program", page)
        self.assertIn("No line has known flops, bytes and peak", page)
        self.assertIn("No kernel ran in this step", page)
        self.assertIn("?", page)
        facts = self.tab.value("document.querySelector('#facts').innerText")
        self.assertIn("unknown, v7x assumed (--chip)", facts)
        self.show_page(trace([op("a", "copy", 0, 5)]))
        self.assertIn("The trace marks no steps", self.tab.value("document.body.innerText"))
        # The page also works for a step without a duration.
        self.show_page(trace([leaf(3, 0)]))

    def test_added_scripts_do_not_run(self) -> None:
        """Test that the content security policy blocks added scripts."""
        self.show_page(trace([leaf(0, 5)], STEP))
        made = "(() => { const made = document.createElement('script'); made.textContent ="
        self.tab.value(f"{made} 'document.title = 1'; document.body.append(made); }})()")
        self.assertNotEqual(self.tab.value("document.title"), "1")
        (complaint,) = self.tab.seen("Log.entryAdded")
        self.assertIn("Content Security Policy", complaint["entry"]["text"])
        self.tab.events.clear()


if __name__ == "__main__":
    unittest.main()
