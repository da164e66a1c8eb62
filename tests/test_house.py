"""Test the rules in CONTRIBUTING.md for packages, imports and lengths.

Imports must point downwards: from the script to modes, analysis, pipeline and decoders. `output`
may import only itself, `units` and `light`. Modules must not import each other in a ring. Imports
inside functions and imports only for type checkers are checked, too.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.builders.xspace import op, trace
from tests.harness import DEMO, LISTED_MODES, ROOT, sampled

SCRIPT, COMMAND = "compute_breakdown", "_breakdown.command"
# A package may import only packages to its left.
LAYERS = (
    "_breakdown.light",
    "_breakdown.units",
    "_peaks",
    "_breakdown.output",
    "_proto",
    "_breakdown.pipeline",
    "_breakdown.analysis",
    "_breakdown.modes",
    COMMAND,
    SCRIPT,
)
PACKAGES = ("_breakdown", "_proto", "tests")
MODULES_OF_MODES = {f"_breakdown.modes.{mode.name}": mode.name for mode in LISTED_MODES}
ANALYSIS = "_breakdown.analysis."
# Only the mode `page` calls other modes.
SHOWS_OTHERS = "page"
# These modules format text. Printing JSON must load none of these modules.
TEXT = {
    f"_breakdown.output.{name}"
    for name in ("forms", "text", "markdown", "csv", "fill", "characters")
}
TEXT |= {"_breakdown.output.figures", "_breakdown.output.blocks"}
# All test classes with this `batch` run in one process, which parses the sources only once.
BATCH = "sources"
# Python compiles the script at each start, but other files only once.
LONGEST = {SCRIPT: 60, COMMAND: 540}
LONGEST_SOURCE, LONGEST_FUNCTION = 500, 60


class Import(NamedTuple):
    of: str
    by: str
    is_for_types: bool


class Source:
    """Represent a source file."""

    def __init__(self, path: Path) -> None:
        self.path = path.relative_to(ROOT)
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)

    @property
    def module(self) -> str:
        return ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")

    def imports(self) -> Iterator[Import]:
        """Yield the imports of the program's own modules."""
        for_types = self.for_types()
        for node in statements(self.tree):
            is_for_types = node in for_types
            if isinstance(node, ast.Import):
                for name in node.names:
                    yield Import(name.name, self.module, is_for_types)
            elif isinstance(node, ast.ImportFrom):
                for name in node.names:
                    # A name imported from a package can itself be a module.
                    package = ".".join(self.module.split(".")[: -node.level or None])
                    start = ".".join(filter(None, (package if node.level else "", node.module)))
                    whole = f"{start}.{name.name}"
                    of = whole if whole in modules() else start
                    yield Import(of, self.module, is_for_types)

    def for_types(self) -> set[ast.AST]:
        return {
            inner
            for node in statements(self.tree)
            if isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING"
            for inner in node.body
        }

    def long_functions(self) -> Iterator[str]:
        """Yield a complaint for each long function without a comment directly above it."""
        lines = self.text.splitlines()
        for node in statements(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
                has_reason = lines[first - 2].lstrip().startswith("#")
                if length > LONGEST_FUNCTION and not has_reason:
                    yield f"{self.path}: {node.name} has {length} lines"


def statements(of: ast.AST) -> Iterator[ast.AST]:
    """Yield all nested statements."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(of, part, ()):
            yield statement
            yield from statements(statement)


@functools.cache
def sources() -> list[Source]:
    """Return all hand-written source files outside of tests."""
    paths = [*ROOT.glob("*.py")]
    for package in PACKAGES[:-1]:
        paths += ROOT.glob(f"{package}/**/*.py")
    found = [Source(path) for path in sorted(paths) if not path.name.endswith("_pb2.py")]
    assert len(found) > 100, "the program's files are elsewhere, so these tests check nothing"
    return found


@functools.cache
def modules() -> frozenset[str]:
    return frozenset(source.module for source in sources())


@functools.cache
def imports() -> list[Import]:
    return [link for source in sources() for link in source.imports() if link.of in modules()]


def ring_in(graph: Mapping[str, set[str]]) -> list[str]:
    """Return a shortest ring, in which each imports the next and the last imports the first."""
    found: list[list[str]] = []
    for start in sorted(graph):
        paths, seen = [[start]], set[str]()
        for path in paths:
            new = sorted(graph[path[-1]] - seen)
            found += [path] if start in new else []
            seen.update(new)
            paths += [[*path, module] for module in new]
    return min(found, key=len, default=[])


def room_of(module: str) -> str:
    """Return the room of `analysis` with the module; a module outside of rooms is its own room."""
    return ".".join(module.split(".")[2:3])


def layer_of(module: str) -> int:
    depth = 2 if module.startswith("_breakdown.") else 1
    return LAYERS.index(".".join(module.split(".")[:depth]))


class Packages(unittest.TestCase):
    batch = BATCH

    def test_top_folder_contains_only_the_script_the_peaks_and_the_packages(self) -> None:
        at_the_top = {path.name for path in ROOT.glob("*.py")}
        self.assertEqual(at_the_top, {"compute_breakdown.py", "_peaks.py"})
        made_by_tools = {"build", "dist"}
        folders = {path.parts[len(ROOT.parts)] for path in ROOT.glob("[!.]*/**/*.py")}
        self.assertEqual(folders - made_by_tools, set(PACKAGES))

    def test_each_mode_has_a_file(self) -> None:
        self.assertEqual(len(MODULES_OF_MODES), len(LISTED_MODES))
        for module in MODULES_OF_MODES:
            self.assertIn(module, modules())
        files = {module for module in modules() if module.startswith("_breakdown.modes.")}
        self.assertEqual(files, set(MODULES_OF_MODES), "modes/ holds modes and nothing else")

    def test_source_files_do_not_exceed_the_length_limit(self) -> None:
        for source in sources():
            longest = LONGEST.get(source.module, LONGEST_SOURCE)
            advice = f"{source.path}: move a part that stands on its own to another file"
            self.assertLessEqual(len(source.text.splitlines()), longest, advice)

    def test_docstrings_and_descriptions_do_not_start_as_noun_clauses(self) -> None:
        paths = [*ROOT.glob("*.py")]
        for package in PACKAGES:
            paths += ROOT.glob(f"{package}/**/*.py")
        start = re.compile(r'"""(What|Whether|How|Of|The same)\b.*')
        found = [
            f"{path.relative_to(ROOT)}: {match[0]}"
            for path in paths
            for match in start.finditer(path.read_text(encoding="utf-8"))
        ]
        self.assertFalse(found, "\n".join(["", *found, "start with a verb or a noun"]))

    def test_long_functions_have_a_comment_with_the_reason(self) -> None:
        tests = map(Source, sampled(sorted(ROOT.glob("tests/**/*.py")), 20))
        found = [result for source in (*sources(), *tests) for result in source.long_functions()]
        advice = "shorten it, or say in a comment right above it why not"
        self.assertFalse(found, "\n".join(["", *found, advice]))


class Imports(unittest.TestCase):
    batch = BATCH

    def test_every_form_of_import_is_found(self) -> None:
        """Test that the parser finds every form of import."""
        for of, by, is_for_types in (
            ("_peaks", "_breakdown.pipeline.options", False),
            ("_breakdown.analysis.report", COMMAND, False),  # This import is inside a function.
            # The import is written `from _breakdown.pipeline import frames`.
            ("_breakdown.pipeline.frames", "_breakdown.pipeline.device", False),
            ("_proto.trace.source", "_proto.trace", True),
        ):
            self.assertIn(Import(of, by, is_for_types), imports())

    def test_imports_point_downwards(self) -> None:
        up = [link for link in imports() if layer_of(link.of) > layer_of(link.by)]
        self.assertEqual(up, [])

    def test_output_imports_only_units_and_light_classes(self) -> None:
        found = [link for link in imports() if link.by.startswith("_breakdown.output.")]
        allowed = tuple(f"_breakdown.{name}" for name in ("output.", "units", "light"))
        self.assertEqual([link for link in found if not link.of.startswith(allowed)], [])

    def test_named_tuples_are_the_light_ones(self) -> None:
        heavy = re.compile(r"^ *from typing import .*\bNamedTuple\b", re.MULTILINE)
        found = [str(source.path) for source in sources() if heavy.search(source.text)]
        self.assertEqual(
            found,
            ["_breakdown/light.py"],
            "import NamedTuple from _breakdown.light, which is faster",
        )

    def test_figures_do_not_depend_on_output(self) -> None:
        """Test that these packages know no output, not even for type checking."""
        packages = ("_breakdown.analysis.", "_breakdown.pipeline.", "_proto.")
        found = [link for link in imports() if link.by.startswith(packages)]
        self.assertEqual([link for link in found if link.of.startswith("_breakdown.output")], [])

    def test_shortest_ring_is_found(self) -> None:
        graph = {"a": {"b"}, "b": {"c", "e"}, "c": {"a"}, "d": {"a"}, "e": {"f"}, "f": {"e"}}
        self.assertEqual(ring_in(graph), ["e", "f"])
        self.assertEqual(ring_in({**graph, "e": set()}), ["a", "b", "c"])
        self.assertEqual(ring_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}), [])
        self.assertEqual(ring_in({"a": {"a"}}), ["a"])

    def test_imports_form_no_ring(self) -> None:
        """Test that no modules import each other, not even inside functions or for types."""
        graph: dict[str, set[str]] = {module: set() for module in modules()}
        for link in imports():
            graph[link.by].add(link.of)
        self.assertEqual(ring_in(graph), [])

    def test_rooms_of_analysis_form_no_ring(self) -> None:
        links = {
            (room_of(link.by), room_of(link.of)): link
            for link in imports()
            if link.by.startswith(ANALYSIS) and link.of.startswith(ANALYSIS)
        }
        graph: dict[str, set[str]] = {room: set() for pair in links for room in pair}
        for by, of in links:
            if by != of:
                graph[by].add(of)
        self.assertLess(
            {"idle", "roof", "devices", "comm", "causes", "loss", "records"}, set(graph)
        )
        ring = ring_in(graph)
        made_by = [links[pair] for pair in zip(ring, [*ring[1:], *ring[:1]], strict=True)]
        found = "".join(f"\n{link.by} imports {link.of}" for link in made_by)
        advice = "move what is imported into the room that imports it, or into a room below both"
        self.assertFalse(ring, f"these imports make a ring of rooms:{found}\n{advice}")
        # CONTRIBUTING.md lists the rooms; a room imports only rooms before it.
        page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        listed = re.findall(r"`(\w+)`", page.split("has one subject: ")[1].split(". ")[0])
        rooms = [path.parent.name for path in (ROOT / ANALYSIS.replace(".", "/")).glob("*/*__.py")]
        self.assertEqual(sorted(listed), sorted(rooms), "list each room in CONTRIBUTING.md")
        for by, of in links:
            if by != of and of in listed and by in listed:
                late = f"list `{by}` after `{of}` in CONTRIBUTING.md: {links[by, of]}"
                self.assertLess(listed.index(of), listed.index(by), late)

    def test_names_of_classes_are_unique(self) -> None:
        places: dict[str, list[str]] = {}
        for source in sources():
            for name in re.findall(r"^ *class (\w+)", source.text, re.M):
                places.setdefault(name, []).append(source.module)
        repeated = {name: found for name, found in places.items() if len(found) > 1}
        self.assertFalse(repeated, "give each class a name that says what sets it apart")

    def test_test_modules_do_not_import_from_test_modules(self) -> None:
        start = re.compile(
            r"^(from tests\S*\.test_\w+ import|from tests\S* import .*\btest_).*", re.M
        )
        found = [
            f"{path.relative_to(ROOT)}: {match[0]}"
            for path in ROOT.glob("tests/**/*.py")
            for match in start.finditer(path.read_text(encoding="utf-8"))
        ]
        advice = "move what both need to a module of tests/builders"
        self.assertFalse(found, "\n".join(["", *found, advice]))

    def test_modes_import_neither_each_other_nor_the_script(self) -> None:
        modes = {module for module, name in MODULES_OF_MODES.items() if name != SHOWS_OTHERS}
        others = {*MODULES_OF_MODES, COMMAND, SCRIPT}
        found = [link for link in imports() if link.by in modes and link.of in others]
        self.assertEqual(found, [])


# This program prints which modules are loaded after an answer.
LOADED = f"""
import json, sys
import {COMMAND} as program
try:
    program.main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)))
"""


class Loaded(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def loaded(self, *arguments: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", LOADED, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        return set(json.loads(done.stdout.splitlines()[-1]))

    def test_mode_loads_no_unrelated_mode(self) -> None:
        path = self.folder / "small.xplane.pb"
        path.write_bytes(trace([op("f", "loop fusion", 0, 5)], [("0", 0, 10)]))
        for module, name in sampled(MODULES_OF_MODES.items(), 4):
            mode = next(mode for mode in LISTED_MODES if mode.name == name)
            example = mode.example.replace("BASELINE", str(path)).split()
            with self.subTest(mode=name):
                loaded = self.loaded(str(path), "--mode", name, *example)
                self.assertIn(module, loaded)
                # This module is protobuf's implementation in Python, which takes long to import.
                in_c = "google._upb._message" in loaded
                self.assertFalse(in_c and "google.protobuf.internal.python_message" in loaded)
                if name != SHOWS_OTHERS:
                    self.assertEqual(loaded & set(MODULES_OF_MODES), {module})
                    self.assertEqual(loaded & TEXT, set())
                    self.assertNotIn("_breakdown.output.schema", loaded)
                if name in ("summary", "memory", "compare"):
                    loaded = self.loaded(str(path), "--mode", name, "--format=text", *example)
                    self.assertEqual(loaded & set(MODULES_OF_MODES), {module})
                    self.assertIn("_breakdown.output.text", loaded)

    def test_records_are_compared_without_protobuf(self) -> None:
        before, after = (str(DEMO.parent / f"{side}.json.gz") for side in ("before", "after"))
        loaded = self.loaded(after, "--mode", "compare", "--baseline", before)
        self.assertIn("_breakdown.analysis.records.changed_causes", loaded)
        self.assertNotIn("google.protobuf", loaded)

    def test_help_loads_no_modes_no_protobuf_and_nothing_for_types(self) -> None:
        loaded = self.loaded("--help")
        self.assertIn("_breakdown.pipeline", loaded)
        unwanted = {"_breakdown.analysis", "_breakdown.output", "_proto", "google", "typing"}
        self.assertEqual(loaded & unwanted, set())
        self.assertEqual(loaded & set(MODULES_OF_MODES), set())

    def test_command_loads_neither_typing_nor_threading(self) -> None:
        path = self.folder / "small.xplane.pb"
        path.write_bytes(trace([op("f", "loop fusion", 0, 5)], [("0", 0, 10)]))
        for mode in ("summary", "bottleneck"):
            done = subprocess.run(
                [sys.executable, "-X", "importtime", ROOT / f"{SCRIPT}.py", path, "--mode", mode],
                capture_output=True,
                text=True,
                check=True,
            )
            loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
            self.assertIn("_proto.hlo.program", loaded)
            self.assertEqual(loaded & {"typing", "threading"}, set(), mode)

    def test_other_code_gets_the_modules_that_the_command_left_out(self) -> None:
        code = """
from _breakdown.light import leave_out_modules
leave_out_modules()
import threading, typing
from google.protobuf.timestamp_pb2 import Timestamp
class Hinted:
    value: typing.Optional[int]
print(threading.current_thread().name, typing.get_type_hints(Hinted)["value"])
print(Timestamp(seconds=5).seconds)
"""
        done = subprocess.run(
            [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}{code}"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual(done.stdout, "MainThread typing.Optional[int]\n5\n")
