"""Test the page in a browser: it draws the figures of its JSON and obeys mouse and keyboard."""

from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

from tests.builders import browser
from tests.builders.xspace import op, trace
from tests.harness import answer
from tests.modes.small_steps import STEP, leaf
from tests.modes.test_page import HOSTILE, data_of, hostile_trace, page_of_demo

Json = dict[str, Any]

# The rows of a table: the row's index in the JSON, then its exact figures.
TABLE = """[...document.querySelectorAll('#%s-table tr[data-row]')].map((row) =>
    [Number(row.dataset.row), ...[...row.querySelectorAll('[data-value]')].map((each) =>
        JSON.parse(each.dataset.value))])"""
BOXES = """[...document.querySelectorAll('.box')].map((each) =>
    ({name: each.textContent, value: Number(each.dataset.value), depth: Number(each.dataset.depth),
      found: each.classList.contains('found'), width: each.getBoundingClientRect().width}))"""
TEXTS = "[...document.querySelectorAll('%s')].map((each) => each.innerText)"
ACTIVE = "document.activeElement.closest('tr, div, circle, button, input')"


def setUpModule() -> None:
    """Start one browser with one tab for all tests."""
    if browser.PROGRAM:
        manager = browser.browser()
        InBrowser.tab = manager.__enter__()
        unittest.addModuleCleanup(manager.__exit__, None, None, None)


@unittest.skipUnless(browser.PROGRAM, f"needs a browser: one of {', '.join(browser.NAMES)}")
class InBrowser(unittest.TestCase):
    """A test in the common browser."""

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

    def show_page(self, profile: bytes) -> Json:
        out = self.folder / "made.html"
        answer(profile, "page", "--out", str(out))
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

    def test_tables_have_the_figures_of_the_json(self) -> None:
        names = {
            "findings": ("bottleneck", "findings", "rank dur_ps lost_ps hideable_ps pct_of_step "
                         "n_executions"),
            "lines": ("by_source", "groups", "total_dur_ps pct_of_step n_executions flops_sum "
                      "hbm_bytes_sum"),
            "roofline": ("roofline", "groups", "total_dur_ps roofline_util shortfall_ps "
                         "arithmetic_intensity mfu hbm_util"),
            "buffers": ("memory", "buffers", "rank bytes pct_of_peak"),
            "ops": ("by_op", "ops", "rank total_dur_ps lost_ps pct_of_step n_executions "
                    "achieved_tflops achieved_gbps"),
            "steps": ("summary", "steps", "index duration_ps n_xla_ops_events"),
            "layers": ("by_scope", "scopes", "total_dur_ps self_dur_ps pct_of_step n_executions"),
            "collectives": ("program", "collectives", "n_instructions n_executions sync_dur_ps "
                            "wait_dur_ps payload_bytes"),
            "parameters": ("program", "parameters", "number bytes"),
        }  # fmt: skip
        for table, (mode, rows, columns) in names.items():
            self.tab.value(f"document.querySelector('#{table}-table .more').click()")
            shown = self.table(table)
            with self.subTest(table=table):
                self.assertEqual(
                    [row[1 : 1 + len(columns.split())] for row in shown],
                    [[row[name] for name in columns.split()] for row in self.answers(mode)[rows]],
                )

    def test_drawings_have_the_figures_of_the_json(self) -> None:
        bottleneck, comm = self.answers("bottleneck"), self.answers("comm")
        budget = sorted(row["dur_ps"] for row in bottleneck["budget"] if row["dur_ps"] > 0)
        values = {
            ".bar .part": budget,
            ".lane .gap": sorted(gap["dur_ps"] for gap in self.answers("idle")["gaps"]),
            ".roofline .point": sorted(
                group["roofline_util"] for group in self.answers("roofline")["groups"]
            ),
            ".cell": sorted(
                each["bytes"] for each in self.answers("memory")["buffers"] if each["bytes"]
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
            with self.subTest(drawing=selector):
                self.assertEqual(
                    self.tab.value(
                        f"[...document.querySelectorAll('{selector}')].map((each) =>"
                        " Number(each.dataset.value)).sort((a, b) => a - b)"
                    ),
                    expected,
                )
        widths = self.tab.value(
            "[...document.querySelectorAll('.bar .part')].map((each) => each.style.width)"
        )
        self.assertAlmostEqual(sum(float(width.rstrip("%")) for width in widths), 100, 3)

    def test_head_names_file_device_chip_and_step(self) -> None:
        head = self.tab.value("document.querySelector('header').textContent")
        for text in ("t1v-n-0.xplane.pb.gz", "/device:TPU:0", "TPU v7x", "101", "18.31 ms"):
            self.assertIn(text, head)
        self.tab.click("#notes summary")
        notes = self.tab.value(TEXTS % "#notes li")
        self.assertEqual(notes, self.data["notes"])

    def test_tables_sort_by_mouse_and_keyboard(self) -> None:
        rows = self.answers("bottleneck")["findings"]
        head = "#findings-table th:nth-child(5) button"
        self.tab.click(head)
        by_time = sorted(range(len(rows)), key=lambda i: -rows[i]["dur_ps"])
        self.assertEqual(self.shown_rows("findings"), by_time[:12])
        self.assertEqual(self.sorting(5), "descending")
        self.tab.press("Enter")
        self.assertEqual(self.sorting(5), "ascending")
        by_time = sorted(range(len(rows)), key=lambda i: rows[i]["dur_ps"])
        self.assertEqual(self.shown_rows("findings"), by_time[:12])
        # Unknown values come last in both orders.
        self.tab.click("#findings-table .more")
        for _ in range(2):
            self.tab.click("#findings-table th:nth-child(6) button")
            lost = [rows[i]["lost_ps"] for i in self.shown_rows("findings")]
            n_known = len(lost) - lost.count(None)
            self.assertTrue(0 < n_known < len(rows))
            self.assertEqual(lost[n_known:], [None] * (len(rows) - n_known))

    def sorting(self, place: int) -> Any:
        head = f"#findings-table th:nth-child({place})"
        return self.tab.value(f"document.querySelector('{head}').getAttribute('aria-sort')")

    def test_tables_filter_by_text_and_class(self) -> None:
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

    def test_row_opens_to_all_its_fields(self) -> None:
        fields = TEXTS % "#findings-table .detail dt"
        self.tab.click('#findings-table tr[data-row="1"]')
        named = list(self.answers("bottleneck")["findings"][1])
        self.assertEqual(self.tab.value(fields), named)
        self.tab.press("ArrowDown")
        self.tab.press("Enter")
        self.assertEqual(self.tab.value(f"{ACTIVE}.dataset.row"), "2")
        self.assertEqual(self.tab.value(f"{ACTIVE}.getAttribute('aria-expanded')"), "true")
        self.tab.press("Escape")
        self.assertEqual(self.tab.value(fields), [])

    def test_marks_lead_to_rows(self) -> None:
        opened = "document.querySelector('#%s-table tr[aria-expanded=true]')?.dataset.row"
        for mark, table in (
            (".gap", "idle"),
            (".roofline .point", "roofline"),
            (".cell", "buffers"),
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

    def test_marks_obey_the_keyboard(self) -> None:
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

    def test_flame_graph_adds_up(self) -> None:
        total = self.data["page"]["totals"]["non_while_duration_ps_sum"]
        boxes = self.boxes()
        self.assertEqual((boxes[0]["value"], boxes[0]["depth"]), (total, 0))
        self.assertEqual(sum(box["value"] for box in boxes if box["depth"] == 1), total)
        width = boxes[0]["width"]
        for box in boxes:
            self.assertAlmostEqual(box["width"], width * box["value"] / total, delta=0.1)
        self.tab.click(".flame input, input[value=scopes]")
        boxes = self.boxes()
        of_scopes = self.answers("by_scope")
        self.assertEqual(boxes[0]["value"], total)
        outer = sorted(box["value"] for box in boxes if box["depth"] == 1)
        expected = [of_scopes["no_scope"]["dur_ps"], of_scopes["scopes"][0]["total_dur_ps"]]
        self.assertEqual(outer, sorted(expected))
        named = {(row["name"], row["total_dur_ps"]) for row in of_scopes["scopes"] if row["depth"]}
        drawn = {(box["name"], box["value"]) for box in boxes if box["depth"] > 1}
        self.assertTrue(drawn)
        self.assertLessEqual(drawn, named)

    def test_flame_graph_zooms(self) -> None:
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
        # The keyboard does the same.
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
        self.assertEqual(self.tab.value(f"{ACTIVE}.closest('section').id"), "lines")

    def test_page_fits_narrow_and_wide_windows(self) -> None:
        self.addCleanup(self.show_size, 1300)
        for width in (400, 2200):
            self.show_size(width)
            self.tab.open(self.folder / "step.html")
            over = self.tab.value("document.documentElement.scrollWidth - innerWidth")
            self.assertLessEqual(over, 0)
        # The page redraws when its width changes.
        wide = self.boxes()[0]["width"]
        self.show_size(700)
        self.tab.value("new Promise((done) => setTimeout(done, 100))")
        for _ in range(50):
            if self.boxes()[0]["width"] < wide / 2:
                break
        self.assertLess(self.boxes()[0]["width"], wide / 2)


def texts_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in texts_of(inner)]
    return [str(value)]


class Others(InBrowser):
    def test_hostile_names_stay_text(self) -> None:
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
        # Controls still work.
        self.tab.click('#ops-table tr[data-row="3"]')
        self.tab.click("input[value=scopes]")
        for name in HOSTILE:
            self.tab.click("#flame input[type=search]")
            self.tab.type(name[:50])
            self.tab.press("Escape")
        self.tab.hover(".strip-holder")

    def test_small_captures_are_shown_with_reasons(self) -> None:
        self.show_page(trace([leaf(0, 0)], STEP))
        page = self.tab.value("document.querySelector('main').innerText")
        self.assertIn("No answer (no_program): the capture has no program", page)
        self.assertIn("No line has known flops, bytes and peak", page)
        self.assertIn("?", page)
        self.show_page(trace([op("a", "copy", 0, 5)]))
        self.assertIn("The trace marks no steps", self.tab.value("document.body.innerText"))
        # This step takes no time.
        self.show_page(trace([leaf(3, 0)]))

    def test_added_scripts_do_not_run(self) -> None:
        """The content security policy blocks added scripts."""
        self.show_page(trace([leaf(0, 5)], STEP))
        made = "(() => { const made = document.createElement('script'); made.textContent ="
        self.tab.value(f"{made} 'document.title = 1'; document.body.append(made); }})()")
        self.assertNotEqual(self.tab.value("document.title"), "1")
        (complaint,) = self.tab.seen("Log.entryAdded")
        self.assertIn("Content Security Policy", complaint["entry"]["text"])
        self.tab.events.clear()


if __name__ == "__main__":
    unittest.main()
