"""Test the page without a browser: its JSON, its size, its safety, and writing the file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from unittest import mock

from _breakdown.modes import NAMES, mode_named
from _breakdown.modes.page import PAGE_MODES, TOP_OF_COMPARE
from _breakdown.output.page_sections import SECTIONS
from _breakdown.output.screen import View
from _breakdown.output.text import Style
from _breakdown.pipeline.device import open_device
from tests.builders.allocator import allocator, with_host
from tests.builders.hostile import HOSTILE, hostile_trace
from tests.builders.peers import device, durations
from tests.builders.xspace import Space, encode, tpu_plane, trace
from tests.harness import DEMO, FULL, InFolder, Json, answer, run
from tests.modes.small_steps import STEP, leaf, small_capture
from tests.shown import data_of, page_of_demo, text_of

SECTION_OF = {place.mode: name for name, place in SECTIONS.items()}


def options_of(mode: str) -> list[str]:
    """Return the options with which the page calls a mode."""
    asked = PAGE_MODES[mode]
    return [
        word
        for name, value in asked.items()
        for word in (f"--{name.replace('_', '-')}", *([] if value is True else [str(value)]))
    ]


class OfPages(InFolder):
    """Provide helpers for tests that make pages."""

    def page(self, profile: str | Path | bytes, *options: str) -> tuple[Json, bytes]:
        """Return the printed answer and the page."""
        out = self.folder / "step.html"
        result = answer(profile, "page", "--out", str(out), *options)
        return result, out.read_bytes()

    def data(self, profile: str | Path | bytes, *options: str) -> Json:
        return data_of(self.page(profile, *options)[1])


class Contents(OfPages):
    # Tests of a batch run in one process, so the page of the demo is made only once.
    batch = "page"

    def assert_equals_answers_of_modes(self, profile: Path, *options: str) -> None:
        data = self.data(profile, *options)
        self.assertEqual(data["left_out"], {})
        for mode in PAGE_MODES:
            asked = options_of(mode)
            # `comm` compares the devices if `bottleneck` did.
            if mode == "comm" and data["answers"]["bottleneck"]["totals"]["peers"] is not None:
                asked.append("--peers")
            outcome = run(profile, mode, *asked, *options).object
            with self.subTest(profile=profile.name, mode=mode):
                self.assertEqual(data["parts"][mode], outcome.get("reason", "ok"))
                if outcome["status"] == "absent":
                    continue
                # The page stores common fields once, so join them with the mode's own fields.
                common, own = dict(data["page"]), dict(data["answers"][mode])
                common |= {"mode": mode, "totals": {**common["totals"], **own.pop("totals")}}
                del outcome["next_steps"]
                of_all = Counter(outcome.pop("notes")) - Counter(own.pop("notes"))
                # Different modes can report different damage in the same program.
                of_step = {note for note in of_all if "HLO can't be read" not in note}
                self.assertLessEqual(of_step, set(data["notes"]))
                self.assertEqual({**common, **own}, outcome)

    def test_page_shows_all_modes_of_a_step(self) -> None:
        modes = {name for name in NAMES if mode_named(name).is_of_step} - {"page", "export"}
        self.assertEqual(set(PAGE_MODES), modes)
        self.assertEqual(set(SECTION_OF), {*modes, "compare"})
        html = page_of_demo()[1].decode()
        sections = set(re.findall(r'<section id="(\w+)"', html))
        self.assertEqual(sections, {*SECTIONS, "timeline", "flame"})
        self.assertEqual(set(re.findall(r'<a href="#(\w+)">', html)), sections)

    def test_page_contains_the_answers_of_the_modes(self) -> None:
        self.assert_equals_answers_of_modes(self.write("small.xplane.pb", small_capture()))
        if FULL:
            self.assert_equals_answers_of_modes(DEMO)
            self.assert_equals_answers_of_modes(DEMO, "--step", "all", "--own", "attention")
            self.assert_equals_answers_of_modes(DEMO, "--device", "1")

    def test_sections_contain_the_sentences_and_tables_of_the_text(self) -> None:
        data = data_of(page_of_demo()[1])
        blocks = [block for name in SECTIONS for block in data["sections"].get(name, [])]
        n_rows = 0
        for mode in PAGE_MODES:
            tables = [block for block in blocks if block.get("mode") == mode]
            common, own = data["page"], data["answers"][mode]
            totals = {**common["totals"], **own["totals"]}
            answer_of_mode = {**common, **own, "mode": mode, "totals": totals}
            text = text_of(answer_of_mode, "utf-8", View(shows_all=True), Style(250))
            lines = [line.split() for line in text.splitlines()]
            self.assertTrue(tables)
            for table in tables:
                columns = [column["texts"] for column in table["columns"] if "values" in column]
                # The text does not repeat a value that all rows have.
                columns = [texts for texts in columns if len(texts) == 1 or len(set(texts)) > 1]
                left = iter(lines)
                for figures in zip(*columns, strict=True):
                    with self.subTest(mode=mode, rows=table["path"], figures=figures):
                        wanted = [figure for figure in figures if figure]
                        found = any(all(map(line.__contains__, wanted)) for line in left)
                        self.assertTrue(found)
                    n_rows += 1
            if mode not in ("bottleneck", "summary"):
                own_blocks = data["sections"][SECTION_OF[mode]]
                says = [block["says"] for block in own_blocks if "says" in block]
                self.assertLessEqual(set(" ".join(says).split()), set(text.split()))
        self.assertGreater(n_rows, 800)

    def test_page_of_all_steps_contains_the_answers_of_the_modes(self) -> None:
        ops = [
            leaf(10 * i, 5, f"f.{i}", stack=f"{'ab'[i % 2]}.py:{i}:1\nm.py:1:1") for i in range(8)
        ]
        steps = [("0", 0, 40), ("1", 40, 40)]
        planes = [tpu_plane(ops[:n], steps, name=f"/device:TPU:{i}") for i, n in enumerate((8, 6))]
        profile = self.write("a.xplane.pb", encode(Space(planes)))
        self.assert_equals_answers_of_modes(profile, "--step", "all", "--own", "a.py")
        self.assert_equals_answers_of_modes(profile, "--device", "1")

    def test_devices_are_compared_by_the_rule_of_bottleneck_and_read_once(self) -> None:
        for lasted, n_read in ((499, 0), (500, 1)):
            reads = mock.patch(
                "_breakdown.analysis.devices.peer_devices.open_device", wraps=open_device
            )
            planes = [device(number, durations(lasted)) for number in range(2)]
            with reads as read, self.subTest(lasted=lasted):
                answers = self.data(encode(Space(planes)))["answers"]
                self.assertEqual(read.call_count, n_read)
                peers = [answers[mode]["totals"]["peers"] for mode in ("bottleneck", "comm")]
                self.assertEqual(peers[0], peers[1])
                self.assertEqual(peers[0] is not None, n_read > 0)

    def test_parts_without_an_answer_have_a_reason(self) -> None:
        data = with_host(trace([leaf(0, 5)], STEP), allocator((1, 0, {"peak_bytes_in_use": 7})))
        result, html = self.page(data)
        lost = {mode for mode, status in result["parts"].items() if status != "ok"}
        self.assertEqual(lost, {"memory", "program", "by_array"})
        self.assertEqual({result["parts"][mode] for mode in lost}, {"no_program"})
        # The runtime's memory is known without a program.
        path = self.write("a.xplane.pb", data)
        runtime = run(path, "memory").object["runtime"]
        self.assertIsNotNone(runtime)
        answers = data_of(html)["answers"]
        self.assertEqual(answers["memory"]["runtime"], runtime)
        for mode in lost:
            self.assertIn("no readable program", answers[mode]["detail"])

    def test_times_by_class_add_up_to_those_of_the_rows_and_of_the_budget(self) -> None:
        data = data_of(page_of_demo()[1])
        answers, classes = data["answers"], data["classes"]
        for rows, times in (
            (answers["by_source"]["groups"], classes["by_source"]),
            (answers["by_scope"]["scopes"], classes["by_scope"]),
        ):
            self.assertEqual(
                [row["total_dur_ps"] for row in rows], [sum(row.values()) for row in times]
            )
        self.assert_is_budget(data, classes["by_source"])
        self.assert_is_budget(data, [classes["by_scope"][0], classes["no_scope"]])

    def assert_is_budget(self, data: Json, times: list[dict[str, int]]) -> None:
        summed: Counter[str] = Counter()
        for time_by_class in times:
            summed.update(time_by_class)
        budget = {row["class"]: row["dur_ps"] for row in data["answers"]["bottleneck"]["budget"]}
        self.assertEqual(budget["overlap"], 0)
        del budget["overlap"], budget["idle"]
        self.assertEqual(+summed, +Counter(budget))


class Comparison(OfPages):
    ops = (leaf(0, 5, stack="a.py:3:1"), leaf(10, 5, "g.1", stack="b.py:1:1"))

    def small(self, dur: int) -> Path:
        longer = leaf(20, dur, "h.1", stack="c.py:1:1")
        return self.write(f"{dur}.xplane.pb", trace([*self.ops, longer], [("s", 0, 20 + dur)]))

    def test_page_with_a_baseline_contains_the_answer_of_compare(self) -> None:
        before, after = self.small(8), self.small(40)
        result, html = self.page(after, "--baseline", str(before))
        self.assertEqual(result["parts"]["compare"], "ok")
        expected = answer(after, "compare", "--baseline", str(before), "--top", str(TOP_OF_COMPARE))
        del expected["next_steps"]
        self.assertEqual(data_of(html)["answers"]["compare"], expected)
        self.assertLessEqual(set(expected["notes"]), set(result["notes"]))


class Timeline(OfPages):
    def test_bins_of_the_timeline_add_up_to_the_totals(self) -> None:
        data = data_of(page_of_demo()[1])
        strip, totals = data["strip"], data["page"]["totals"]
        self.assertEqual(strip["n_bins"], 1000)
        self.assertEqual(sum(strip["idle"]), totals["idle_duration_ps"])
        for row in data["answers"]["bottleneck"]["budget"]:
            if row["class"] in strip["by_class"]:
                self.assertEqual(sum(strip["by_class"][row["class"]]), row["dur_ps"])
        self.assertEqual(
            sum(map(sum, strip["by_class"].values())), totals["non_while_duration_ps_sum"]
        )


class Limits(OfPages):
    def test_page_of_many_ops_with_long_names_omits_rows_with_a_note(self) -> None:
        n = 30_000 if FULL else 1200
        ops = [
            leaf(
                10 * i,
                n - i,
                f"f.{i}",
                stack="\n".join(f"m{i}.py:{j}:1" for j in range(9)),
                tf_op=f"jit(f)/a{i % 700}/{'<&>' * 100}{i}/add:",
            )
            for i in range(n)
        ]
        result, html = self.page(trace(ops, [("s", 0, 10 * n)]))
        self.assertLess(len(html), 10_000_000)
        data = data_of(html)
        tail = data["answers"]["by_source"]["tail"]
        shown = data["answers"]["by_source"]["groups"]
        n_cut = data["left_out"].get("by_source.groups", 0)
        self.assertEqual(len(shown) + n_cut + tail["n_groups_omitted"], n)
        self.assert_left_out(data, result)

    def assert_left_out(self, data: Json, result: Json) -> None:
        """Check that a note reports how many rows of each table are left out."""
        self.assertTrue(data["left_out"])
        (note,) = (note for note in result["notes"] if "rows omitted to keep" in note)
        for name, n in data["left_out"].items():
            self.assertIn(f"{n} of {name}", note)

    def test_scopes_with_least_time_are_omitted_from_a_large_page(self) -> None:
        ops = [
            leaf(100 * i, 1 + i % 90, f"f.{i}", tf_op=f"jit(f)/a{i % 3}/b{i}/add:")
            for i in range(3000 if FULL else 1050)
        ]
        profile = self.write("a.xplane.pb", trace(ops, [("s", 0, 300_000)]))
        result, html = self.page(profile)
        data = data_of(html)
        self.assert_left_out(data, result)
        every = answer(profile, "by_scope", "--depth", "12")["scopes"]
        shown = data["answers"]["by_scope"]["scopes"]
        self.assertEqual(len(shown) + data["left_out"]["by_scope.scopes"], len(every))
        self.assertEqual(len(data["classes"]["by_scope"]), len(shown))
        names = {row["scope"] for row in shown}
        self.assertEqual([row for row in every if row["scope"] in names], shown)
        least = min(row["total_dur_ps"] for row in shown)
        for row in every:
            self.assertTrue(row["scope"] in names or row["total_dur_ps"] <= least)
        for row, times in zip(shown, data["classes"]["by_scope"], strict=True):
            self.assertIn(row["scope"].rpartition("/")[0], {*names, ""})
            self.assertEqual(sum(times.values()), row["total_dur_ps"])


class Safe(OfPages):
    def test_hostile_names_remain_text(self) -> None:
        data, html = self.page(hostile_trace())
        self.assertEqual(data["status"], "ok")
        # The page has two `script` elements: the JSON and the code.
        text = html.decode()
        self.assertEqual(text.count("<script"), 2)
        self.assertEqual(text.count("</script"), 2)
        (encoded,) = re.findall(r'id="data">(.*?)</script>', text)
        self.assertFalse(set("<>&\u2028\u2029") & set(encoded))
        self.assertTrue(encoded.isascii())
        rows = json.loads(encoded)["answers"]["by_op"]["ops"]
        kept = {row["hlo_category"] for row in rows}
        for name in HOSTILE:
            with self.subTest(name=name[:20]):
                self.assertTrue(name in kept or len(name) > 1000)

    def test_security_policy_allows_only_the_script_and_style_of_the_page(self) -> None:
        text = page_of_demo()[1].decode()
        (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', text)
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        self.assertEqual(rules.pop("default-src"), "'none'")
        (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
        (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
        for name, inside in (("style-src", style), ("script-src", script)):
            digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
            self.assertEqual(rules.pop(name), f"'sha256-{digest}'")
        self.assertEqual(set(rules.values()), {"'none'"})


class Writing(InFolder):
    small = trace([leaf(0, 5)], STEP)

    def assert_cant_write(self, out: Path | str, what: str) -> None:
        outcome = run(self.small, "page", "--out", str(out))
        self.assertEqual(outcome.object["reason"], "cant_write")
        self.assertIn(str(out), outcome.object["detail"])
        self.assertIn(what, outcome.object["detail"])
        self.assertEqual(outcome.status, 1)
        self.assertEqual(len(outcome.stderr.splitlines()), 1)

    def test_only_pages_and_empty_files_are_replaced(self) -> None:
        for name in ("page.html", "page.html", self.write("empty.html", b"").name):
            self.assertEqual(run(self.small, "page", "--out", str(self.folder / name)).status, 0)
        trace = self.write("capture.pb", self.small)
        for path in (trace, self.write("mine.html", b"<!doctype html><title>mine</title>")):
            before = path.read_bytes()
            self.assert_cant_write(path, "exists and is not a page")
            self.assertEqual(path.read_bytes(), before)

    def test_page_is_opened_in_the_browser_only_with_option_open(self) -> None:
        out = self.folder / "a b.html"
        for is_open in (True, False):
            with mock.patch("webbrowser.open", return_value=is_open) as opened:
                outcome = run(self.small, "page", "--out", str(out), "--open")
            opened.assert_called_once_with(out.as_uri())
            complaint = f"--open found no browser; open {out} yourself"
            self.assertEqual(complaint in outcome.object["notes"], not is_open)
        with mock.patch("webbrowser.open") as opened:
            run(self.small, "page", "--out", str(out))
        opened.assert_not_called()

    def test_page_replaces_the_target_of_a_link(self) -> None:
        self.write("step.html", b"")
        link = self.folder / "link.html"
        link.symlink_to("step.html")
        run(self.small, "page", "--out", str(link))
        self.assertTrue(link.is_symlink())
        self.assertTrue((self.folder / "step.html").read_bytes().startswith(b"<!doctype html>"))
        self.assertEqual(len(list(self.folder.iterdir())), 2)

    def test_out_option_is_rejected_if_missing_or_dangerous(self) -> None:
        outcome = run(DEMO, "page")
        self.assertEqual((outcome.object["reason"], outcome.status), ("bad_arguments", 2))
        self.assertIn("--out FILE", outcome.object["detail"])
        profile = self.write("a.xplane.pb", trace([leaf(0, 5)]))
        for name in ("a.xplane.pb", "b.xplane.pb.gz", "c.xplane.riegeli"):
            outcome = run(profile, "page", "--out", str(self.folder / name))
            self.assertIn(f"{name} would overwrite a trace", outcome.object["detail"])
        outcome = run(profile, "page", "--out", "-")
        self.assertIn("--out must be a file", outcome.object["detail"])
        outcome = run(DEMO, "summary", "--out", "a.html")
        self.assertEqual(outcome.object["reason"], "bad_arguments")
