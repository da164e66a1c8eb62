"""Test that the list of the program's messages is complete.

The list shows all messages in one place, so that a reader can compare their wording. Regenerate it:

    python -m tests.test_messages >tests/data/messages.txt
"""

from __future__ import annotations

import ast
import sys
import unittest
from collections.abc import Iterator

from tests.harness import ROOT
from tests.test_house import BATCH, sources

LIST = ROOT / "tests" / "data" / "messages.txt"
SOURCES = (
    *("_breakdown/command.py", "compute_breakdown.py", "_peaks.py", "_breakdown/units.py"),
    *("_breakdown/modes/*.py", "_breakdown/analysis/**/*.py", "_breakdown/pipeline/*.py"),
    "_proto/**/*.py",
)
# These files contain no messages: generated code, and lists of categories.
WITHOUT_MESSAGES = ("_pb2.py", "vocabulary.py")
# A string with fewer words is a name or part of a message.
LEAST_WORDS = 3
# Strings passed to these functions are not messages but names, patterns or SQL.
NO_MESSAGE_IN = ("split", "compile", "sub", "match", "fullmatch", "execute", "executemany")


def all_messages() -> Iterator[str]:
    """Yield all messages as `file: template`, in the order of the source."""
    trees = {source.path: source.tree for source in sources()}
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            if not path.name.endswith(WITHOUT_MESSAGES):
                name = path.relative_to(ROOT)
                for template in messages_in(trees[name]):
                    yield f"{name.as_posix()}: {template}"


def messages_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # A docstring is not a message.
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in NO_MESSAGE_IN:
        return
    if isinstance(node, (ast.Constant, ast.JoinedStr)):
        template = template_of(node)
        if len(template.split()) >= LEAST_WORDS and not template.endswith(" | None"):
            yield template.strip().replace("\n", r"\n")
        return
    for child in ast.iter_child_nodes(node):
        yield from messages_in(child)


def template_of(node: ast.AST) -> str:
    """Return the text of a string, with the expressions of an f-string in braces."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(template_of, node.values))
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


class MessagesTest(unittest.TestCase):
    batch = BATCH

    def test_list_of_messages_is_complete(self) -> None:
        listed = LIST.read_text(encoding="utf-8").splitlines()
        found = list(all_messages())
        new = [message for message in found if message not in listed]
        gone = [message for message in listed if message not in found]
        advice = f"new: {new}\ngone: {gone}\nregenerate the list: see the top of {__file__}"
        self.assertEqual(found, listed, advice)


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    print(*all_messages(), sep="\n")
