"""Test the page in a browser: charts show the numbers in the JSON; mouse and keyboard work."""

from __future__ import annotations

import json
import tempfile
import unittest
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import compute_breakdown
from tests.builders import browser
from tests.builders.drawn import host
from tests.builders.hostile import HOSTILE, hostile_trace
from tests.builders.pauses import FEED, device as pausing, thread as host_thread
from tests.builders.xspace import Space, encode, trace
from tests.harness import Json, answer
from tests.modes.small_steps import STEP, leaf
from tests.shown import data_of, page_of_demo

# For each table: its rows' path, its headings, and the texts and exact figures of its cells.
TABLES = """[...document.querySelectorAll('.table')].map((table) => ({
    rows: table.dataset.rows,
    headings: [...table.querySelectorAll('th')].map((head) => head.innerText),
    texts: [...table.querySelectorAll('tbody tr[data-row], tfoot tr:not(:has(.more))')].map((row) =>
        [...row.children].map((cell) => (cell.querySelector('[title]') ?? cell).innerText)),
    values: [...table.querySelectorAll('tbody tr[data-row]')].map((row) =>
        [...row.querySelectorAll('[data-value]')].map((cell) => JSON.parse(cell.dataset.value))),
}))"""
FINDINGS, OPS = ('.table[data-rows="bottleneck.findings"]', '.table[data-rows="by_op.ops"]')
BOXES = """[...document.querySelectorAll('.box')].map((box) =>
    ({name: box.textContent, value: Number(box.dataset.value), depth: Number(box.dataset.depth),
      found: box.classList.contains('found'), width: box.getBoundingClientRect().width}))"""
UNITS = {"ps": 1, "ns": 10**3, "µs": 10**6, "ms": 10**9, "s": 10**12}
PERIOD = """[...document.querySelectorAll('.period :is(.frame, .step)')].map((part) =>
    [part.matches('.step') ? 'strip' : part.innerText, part.className,
     part.style.left, part.style.width])"""
TILES = """[...document.querySelectorAll('#budget .part')].map((tile) =>
    [tile.dataset.name, Number(tile.dataset.value), tile.getAttribute('aria-label')])"""
# The page keeps figures and their units on one line.
TEXTS = """[...document.querySelectorAll('%s')].map((element) =>
    element.innerText.replaceAll('\\u00a0', ' '))"""
# Controls and headings that a screen reader cannot name.
NAMELESS = """[...document.querySelectorAll('button, th, input, select, summary, a, [role=button],'
    + ' [role=slider], [role=group], [role=treegrid]')].filter((node) => !node.innerText &&
    !node.getAttribute('aria-label') && !node.labels?.length).map((node) => node.outerHTML)"""
# Elements that can only be read by scrolling sideways, or are cut off.
CLIPPED = """[...document.querySelectorAll('nav, main *')].filter((node) =>
    node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 0 &&
    getComputedStyle(node).overflowX !== 'visible' &&
    !node.closest('.flame, .period, .bar, .lane, .unseen')).map((node) =>
        `${node.closest('section')?.id} ${node.className}`)"""
# Labels that are cut off without an ellipsis.
CUT = """[...document.querySelectorAll('.part, .box, .frame')].filter((box) =>
    box.innerText && box.scrollWidth > box.clientWidth + 1 &&
    getComputedStyle(box).textOverflow !== 'ellipsis').map((box) => box.innerText)"""
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

    def show_page(self, profile: bytes | Path, *options: str) -> Json:
        out = self.folder / "made.html"
        answer(profile, "page", "--out", str(out), *options)
        return self.show(out.read_bytes())

    def shown_rows(self, table: str) -> list[int]:
        rows = f"[...document.querySelectorAll('{table} tr[data-row]')]"
        found: list[int] = self.tab.value(f"{rows}.map((row) => Number(row.dataset.row))")
        return found

    def values_of(self, selector: str) -> list[float]:
        marks = f"[...document.querySelectorAll('{selector}')]"
        found: list[float] = self.tab.value(f"{marks}.map((mark) => Number(mark.dataset.value))")
        return found

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

    def opened(self) -> str:
        """Return the table and the row that has the focus."""
        row = f"{ACTIVE}.closest('.table').dataset.rows + '.' + {ACTIVE}.dataset.row"
        found: str = self.tab.value(row)
        return found

    def test_tables_and_sentences_are_those_of_the_sections(self) -> None:
        self.tab.value("document.querySelectorAll('.more').forEach((button) => button.click())")
        shown = iter(self.tab.value(TABLES))
        n_rows = 0
        for name, blocks in self.data["sections"].items():
            for block in (block for block in blocks if "columns" in block):
                table, columns = next(shown), block["columns"]
                with self.subTest(section=name, rows=table["rows"]):
                    self.assertEqual(table["headings"], [column["heading"] for column in columns])
                    figures = [column["values"] for column in columns if "values" in column]
                    texts = [column["texts"] for column in columns if "values" in column]
                    places = [i for i, column in enumerate(columns) if "values" in column]
                    for i, row in enumerate(table["texts"]):
                        self.assertEqual([row[at] for at in places], [of[i] for of in texts])
                    for i, row in enumerate(table["values"]):
                        exact = [of[i] for of, text in zip(figures, texts, strict=True) if text[i]]
                        self.assertEqual(row, exact)
                    n_rows += len(table["values"])
        self.assertGreater(n_rows, 800)
        says = [block["says"] for blocks in self.data["sections"].values() for block in blocks
                if "says" in block]  # fmt: skip
        self.assertEqual(sorted(self.tab.value(TEXTS % ".sentence")), sorted(says))

    def test_charts_show_the_numbers_in_the_json(self) -> None:
        step = self.data["page"]["step_duration_ps"]
        budget = [row["dur_ps"] for row in self.answers("bottleneck")["budget"]]
        values = {
            "#budget .bar .part": [ps for ps in budget if ps > 0],
            # Gaps of less than 0.05 % of the step are not drawn.
            ".lane .gap": [
                gap["dur_ps"]
                for gap in self.answers("idle")["gaps"]
                if gap["dur_ps"] >= step / 2000
            ],
            ".column": [row["duration_ps"] for row in self.answers("summary")["steps"]],
        }
        for selector, expected in values.items():
            with self.subTest(chart=selector):
                self.assertEqual(sorted(self.values_of(selector)), sorted(expected))
        # The roofline has a point for every row of at least 0.5 % of the step.
        groups, points = self.answers("roofline")["groups"], self.values_of(".roofline .point")
        large = [row["roofline_util"] for row in groups if row["total_dur_ps"] >= step / 200]
        self.assertTrue(0 < len(large) <= len(points) < len(groups))
        self.assertLessEqual(set(large), set(points))
        says = self.tab.value("document.querySelector('.roofline').innerText")
        self.assertIn(f"{len(groups) - len(points)} more points, each less than 0.5 %", says)

    def test_top_of_the_page_shows_the_capture_the_headline_and_the_causes(self) -> None:
        head = self.tab.value("document.querySelector('header').textContent")
        version = compute_breakdown.__version__
        for text in (version, "t1v-n-0.xplane.pb.gz", "/device:TPU:0", "TPU v7x", "101"):
            self.assertIn(text, head)
        found = self.answers("bottleneck")
        self.assertEqual(self.tab.value(TEXTS % "h1"), [found["headline"]])
        causes = '.table[data-rows="bottleneck.causes"]'
        self.assertEqual(self.shown_rows(causes), [0, 1, 2])
        self.tab.click(f"{causes} .more")
        first = self.tab.value(TABLES)[0]
        self.assertEqual(first["rows"], "bottleneck.causes")
        for row, cause in zip(first["values"], found["causes"], strict=True):
            known = [] if cause["gain_ps"] is None else [cause["gain_ps"], *cause["gain_range_ps"]]
            self.assertEqual(row[:3], known)
        # Causes that share advice show it once.
        helps = self.tab.value(TEXTS % "#lead tr.below")
        for advice in {cause["what_helps"] for cause in found["causes"]}:
            self.assertEqual(sum(advice in text for text in helps), 1)

    def test_tables_can_be_sorted_with_mouse_and_keyboard(self) -> None:
        rows = self.answers("bottleneck")["findings"]
        place = f"document.querySelector('{FINDINGS} th:nth-child(2)').getAttribute('aria-sort')"
        by_time = sorted(range(len(rows)), key=lambda i: -rows[i]["dur_ps"])
        self.tab.click(f"{FINDINGS} th:nth-child(2) button")
        self.assertEqual(self.shown_rows(FINDINGS), by_time[:12])
        self.assertEqual(self.tab.value(place), "descending")
        self.tab.press("Enter")
        self.assertEqual(self.tab.value(place), "ascending")
        # Unknown values come last in ascending and in descending order.
        self.tab.click(f"{FINDINGS} .more")
        for _ in range(2):
            self.tab.click(f"{FINDINGS} th:first-child button")
            lost = [rows[i]["lost_ps"] for i in self.shown_rows(FINDINGS)]
            n_known = len(lost) - lost.count(None)
            self.assertTrue(0 < n_known < len(rows))
            self.assertEqual(lost[n_known:], [None] * (len(rows) - n_known))

    def test_tables_can_be_filtered_by_words_and_by_column(self) -> None:
        rows = self.answers("bottleneck")["findings"]
        texts = [json.dumps(row) for row in rows]
        wanted = [i for i, text in enumerate(texts) if "attention.py:15" in text]
        wanted = [i for i in wanted if "broadcast" in texts[i]]
        self.assertTrue(0 < len(wanted) < 12)
        self.tab.click(f"{FINDINGS} input")
        self.tab.type("ATTENTION.PY:15 broadcast")
        self.assertEqual(self.shown_rows(FINDINGS), wanted)
        self.tab.press("Escape")
        self.assertEqual(self.shown_rows(FINDINGS), list(range(12)))
        self.tab.type("class=data_movement")
        moved = [i for i, row in enumerate(rows) if row["class"] == "data_movement"]
        self.assertEqual(self.shown_rows(FINDINGS), moved[:12])

    def test_click_on_a_mark_in_a_chart_opens_its_row(self) -> None:
        for mark, table in (
            (".gap", "idle.gaps"),
            (".roofline .point", "roofline.groups"),
            (".column", "summary.steps"),
            (".strip-holder", "by_op.ops"),
        ):
            with self.subTest(mark=mark):
                self.tab.click(mark)
                self.assertEqual(self.opened().rpartition(".")[0], table)
                self.assertEqual(self.tab.value(f"{ACTIVE}.getAttribute('aria-expanded')"), "true")
        self.tab.hover("#budget .part")
        self.assertIn("2.925 ms", self.tab.value("document.querySelector('#tip').innerText"))
        self.tab.click("#budget .part")
        rows = self.answers("bottleneck")["findings"]
        collective = [i for i, row in enumerate(rows) if row["class"] == "collective"]
        self.assertEqual(self.shown_rows(FINDINGS), collective[:12])

    def test_widths_in_the_flame_graph_are_proportional_to_time(self) -> None:
        total = self.data["page"]["totals"]["non_while_duration_ps_sum"]
        of_scopes = self.answers("by_scope")
        outer = [of_scopes["no_scope"]["dur_ps"], of_scopes["scopes"][0]["total_dur_ps"]]
        for graph in ("scopes", "paths"):
            self.tab.click(f"input[value={graph}]")
            boxes = self.boxes()
            with self.subTest(graph):
                self.assertEqual((boxes[0]["value"], boxes[0]["depth"]), (total, 0))
                inner = [box["value"] for box in boxes if box["depth"] == 1]
                self.assertEqual(sum(inner), total)
                if graph == "scopes":
                    self.assertEqual(sorted(inner), sorted(outer))
                for box in boxes:
                    width = boxes[0]["width"] * box["value"] / total
                    self.assertAlmostEqual(box["width"], width, delta=0.1)
        # All stacks begin with the same frames, so the flame graph draws them as one box.
        self.assertIn("train.py:42 → … → train.py:42", [box["name"] for box in boxes])

    def test_flame_graph_can_be_zoomed_with_mouse_and_keyboard(self) -> None:
        whole = self.boxes()
        width = whole[0]["width"]
        inner = next(i for i, box in enumerate(whole) if box["width"] < width / 2)
        self.tab.click(f".box:nth-child({inner + 1})")
        wide = [box["value"] for box in self.boxes() if abs(box["width"] - width) < 0.5]
        self.assertIn(whole[inner]["value"], wide)
        says = self.tab.value("document.querySelector('.inspector').innerText")
        self.assertIn(whole[inner]["name"].removeprefix("…/"), says)
        self.tab.press("Escape", times=20)
        self.assertEqual(self.boxes(), whole)
        # The keyboard zooms the flame graph, too.
        for _ in range(whole[inner]["depth"]):
            self.tab.press("ArrowDown")
        for key in ("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Enter"):
            self.tab.press(key)
        self.assertLess(self.boxes()[-1]["value"], whole[0]["value"])
        self.tab.click("#flame .toolbar button")
        self.assertEqual(self.boxes(), whole)
        self.tab.click(".box:nth-child(3)")
        self.tab.click(".inspector button")
        self.assertEqual(self.opened().rpartition(".")[0], "by_scope.scopes")

    def test_nothing_is_cut_off_in_narrow_and_wide_windows(self) -> None:
        self.addCleanup(self.show_size, 1300)
        # Sentences can contain long names, too.
        html = page_of_demo()[1]
        self.assertIn(b"all-to-alls among", html)
        self.show(html.replace(b"all-to-alls among", b"long" * 50))
        cards = {}
        for width in (390, 900, 1280):
            self.show_size(width)
            self.tab.open(self.folder / "step.html")
            with self.subTest(width=width):
                over = self.tab.value("document.documentElement.scrollWidth - innerWidth")
                self.assertLessEqual(over, 0)
                self.assertEqual(self.tab.value(CLIPPED), [])
                # Labels fit, are left out, or end in an ellipsis.
                self.assertEqual(self.tab.value(CUT), [])
            cards[width] = self.tab.value("document.querySelectorAll('.cards').length")
        # The narrower the window, the more tables are cards.
        self.assertEqual(list(cards.values()), sorted(cards.values(), reverse=True))
        self.assertEqual(cards[1280], 0)
        self.assertGreater(cards[390], 0)


class OtherPages(InBrowser):
    def assert_hostile_names_are_text(self) -> None:
        self.assertNotEqual(self.tab.value("document.title"), "owned")
        self.assertEqual(self.tab.value("document.querySelectorAll('main img, main b').length"), 0)
        self.assertEqual(self.tab.value("document.querySelectorAll('script').length"), 2)
        self.tab.value("document.querySelectorAll('.more').forEach((button) => button.click())")
        seen = self.tab.value("document.querySelector('main').innerText")
        self.assertIn("<img src=x onerror", seen)
        # Invisible characters are shown as escapes.
        self.assertIn("\\u202egnp.py", seen)
        self.assertFalse({"\u202e", "\u2066", "\u200f", "\ufeff", "\u0007"} & set(seen))

    def test_hostile_names_remain_text(self) -> None:
        data = self.show_page(hostile_trace())
        self.assert_hostile_names_are_text()
        self.assertEqual(len(self.shown_rows(OPS)), len(data["answers"]["by_op"]["ops"]))
        # The page's own script still works.
        self.tab.click(f"{OPS} tr[data-row='3']")
        self.tab.click("input[value=scopes]")
        for name in HOSTILE:
            self.tab.click("#flame input[type=search]")
            self.tab.type(name[:50])
            self.tab.press("Escape")
        self.tab.hover(".strip-holder")
        self.show_comparison(hostile_trace(), hostile_trace(30))
        self.assert_hostile_names_are_text()

    def show_comparison(self, after: bytes | Path, baseline: bytes | Path) -> Json:
        if isinstance(baseline, bytes):
            (self.folder / "before.xplane.pb").write_bytes(baseline)
            baseline = self.folder / "before.xplane.pb"
        out = self.folder / "made.html"
        answer(after, "page", "--out", str(out), "--baseline", str(baseline))
        return self.show(out.read_bytes())

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
        self.assertEqual(self.values_of("#changes .part"), [20, 30, 10])
        for chart in (".strip", ".flame"):
            count = f"document.querySelectorAll('main {chart}').length"
            self.assertEqual(self.tab.value(count), 2)
        self.assertEqual({box["value"] for box in self.boxes()}, {20, 30})
        self.assertEqual(
            [self.tab.value(wrong) for wrong in (NAMELESS, CLIPPED, SKIPPED)], [[]] * 3
        )
        # A click on a chart of the baseline opens no row.
        self.tab.click("#changes .bar .part")
        self.tab.click("#timeline > div:not(.period) .strip-holder")
        self.tab.click("#flame > div:last-child .box")
        self.assertEqual(self.tab.value("document.querySelectorAll('tr.detail').length"), 0)

    def test_period_is_drawn_with_the_frames_of_the_host_above_the_pause(self) -> None:
        """Draw a step of 80 ms and a pause of 20 ms; the host's frame takes 94 of the 100 ms."""
        planes = [pausing(), host(host_thread((FEED, 5, 99)))]
        self.show_page(encode(Space(planes)), "--step", "0")
        self.assertEqual(
            self.tab.value(PERIOD),
            [
                ["feed.py:17 get_batch", "frame own mark", "5%", "94%"],
                ["pause 20.00 ms", "frame c-idle mark", "80%", "20%"],
                ["strip", "step", "0%", "80%"],
            ],
        )
        self.assertEqual([ps / 1e9 for ps in self.values_of(".frame")], [94, 20])
        self.tab.click(".frame[role=button]")
        opened = "document.querySelector('tr[aria-expanded=true]').closest('.table').dataset.rows"
        self.assertEqual(self.tab.value(opened), "bottleneck.causes")

    def assert_tiles_agree_with_the_answer(self, data: Json) -> tuple[int, str] | None:
        """Compare the tiles of the bar with the table below it. Return the tile of the pause."""
        tiles = {name: (ps, says) for name, ps, says in self.tab.value(TILES)}
        pause = tiles.pop("between steps", None)
        names, times, shares = data["sections"]["budget"][0]["columns"][:3]
        rows = zip(names["texts"], times["values"], shares["values"], strict=True)
        table = {name: (ps, pct) for name, ps, pct in rows}
        # Overlap is negative, so it has no tile.
        self.assertEqual(tiles.keys(), {name for name, (ps, _) in table.items() if ps > 0})
        for name, (ps, says) in tiles.items():
            self.assertEqual((name, ps), (name, table[name][0]))
            # The time is the exact one, rounded half up.
            shown, unit = says.removeprefix(f"{name} ").partition(",")[0].split()
            exact = Decimal(int(ps)) / UNITS[unit]
            self.assertEqual(Decimal(shown), exact.quantize(Decimal(shown), ROUND_HALF_UP))
            share = "<0.1" if 0 < table[name][1] < 0.05 else f"{table[name][1]:.1f}"
            self.assertIn(f", {share} % of the step", says)
        whole = sum(ps for ps, _ in table.values())
        self.assertEqual(whole, data["page"]["step_duration_ps"])
        return pause

    def test_tiles_agree_with_the_answer_and_with_the_headline(self) -> None:
        feed = host_thread((FEED, 80, 99), (FEED, 180, 199))
        data = self.show_page(encode(Space([pausing(), host(feed)])), "--step", "0")
        pause = self.assert_tiles_agree_with_the_answer(data)
        assert pause
        found = data["answers"]["bottleneck"]
        gains = [row["gain_ps"] for row in found["causes"] if "pauses" in row["evidence"]]
        self.assertEqual([pause[0], pause[0]], [found["between_steps_ps"], sum(gains)])
        self.assertIn("20.00 ms, 20.0 % of the period", pause[1])
        self.assertIn("20.0 of 100.0 ms (20.0 %)", found["headline"])
        self.assertIn("20.00 ms", self.tab.value("document.querySelector('#facts').innerText"))
        for width in (400, 1280):
            self.show_size(width)
            self.tab.open(self.folder / "step.html")
            self.assertEqual([self.tab.value(wrong) for wrong in (CLIPPED, CUT)], [[], []])
        self.show_size(1300)

    def test_added_scripts_do_not_run(self) -> None:
        """Test that the content security policy blocks added scripts."""
        self.show_page(trace([leaf(0, 5)], STEP))
        made = "(() => { const made = document.createElement('script'); made.textContent ="
        self.tab.value(f"{made} 'document.title = 1'; document.body.append(made); }})()")
        self.assertNotEqual(self.tab.value("document.title"), "1")
        (complaint,) = self.tab.seen("Log.entryAdded")
        self.assertIn("Content Security Policy", complaint["entry"]["text"])
        self.tab.events.clear()
