"""Read types, units and documentation of the declared fields."""

from __future__ import annotations

import ast
import sys
from functools import cache
from importlib import import_module
from inspect import cleandoc
from typing import Any, NamedTuple, get_type_hints, is_typeddict


class Field(NamedTuple):
    """A field of an object."""

    name: str
    type: Any
    doc: str
    is_required: bool


def answer_of(mode: str) -> type:
    """Return the class of a mode's answers."""
    answer: type = import_module(f"_output.fields.{mode}").Answer
    return answer


def absent_of(mode: str) -> type:
    """Return the class of the object that a mode prints when it has no answer."""
    from _output.fields.common import AbsentAnswer

    absent: type = getattr(sys.modules[answer_of(mode).__module__], "Absent", AbsentAnswer)
    return absent


def fields_of(declared: Any) -> list[Field]:
    """Return all fields of a class, inherited fields first."""
    classes = (*bases_of(declared), declared)
    docs = {name: doc for base in classes for name, doc in own_docs(base)}
    hints = get_type_hints(declared, include_extras=True)
    return [
        Field(name, hints[name], doc, name in declared.__required_keys__)
        for name, doc in docs.items()
    ]


def bases_of(declared: Any) -> list[Any]:
    """Return all classes that a class inherits from, the most distant ancestor first.

    A `TypedDict` does not store its bases at run time, so parse the source.
    """
    node = statements(declared.__module__)[declared.__name__][0]
    if not isinstance(node, ast.ClassDef):
        return []
    module = sys.modules[declared.__module__]
    direct = [getattr(module, base.id) for base in node.bases if isinstance(base, ast.Name)]
    direct = [base for base in direct if is_typeddict(base)]
    return list(dict.fromkeys(found for base in direct for found in (*bases_of(base), base)))


def doc_of(declared: Any) -> str:
    """Return the documentation of a class."""
    node, doc = statements(declared.__module__)[declared.__name__]
    return in_one_line(ast.get_docstring(node) or "") if isinstance(node, ast.ClassDef) else doc


def own_docs(declared: Any) -> list[tuple[str, str]]:
    """Return the names and documentation of a class's own fields, in order."""
    node, doc = statements(declared.__module__)[declared.__name__]
    if not isinstance(node, ast.ClassDef):
        # A field whose name is a Python keyword is declared by an assignment:
        # `Name = TypedDict("Name", {"class": …})`.
        return [(name, doc) for name in declared.__annotations__]
    return [
        (field.target.id, doc)
        for field, doc in documented(node.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    ]


@cache
def statements(module: str) -> dict[str, tuple[ast.stmt, str]]:
    """Return the classes and assignments of a module by name, with the string after each."""
    spec = sys.modules[module].__spec__
    # Use the loader, because it can also read the source from a zip archive.
    source = spec.loader.get_source(module)  # type: ignore[union-attr]
    found: dict[str, tuple[ast.stmt, str]] = {}
    for node, doc in documented(ast.parse(source).body):
        if isinstance(node, ast.ClassDef):
            found[node.name] = node, doc
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node, doc
    return found


def documented(body: list[ast.stmt]) -> list[tuple[ast.stmt, str]]:
    """Pair each statement with the string literal that follows it, or with an empty string."""
    found = []
    for node, following in zip(body, [*body[1:], None], strict=True):
        doc = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            doc = in_one_line(str(following.value.value))
        found.append((node, doc))
    return found


def in_one_line(doc: str) -> str:
    return " ".join(cleandoc(doc).split())
