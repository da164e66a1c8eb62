"""Write FIELDS.md from the declared fields: `python -m _output.fields_page >FIELDS.md`.

Each mode has one table. It lists the fields of the answer, then each object: the object's path in
bold, followed by the object's fields. Classes that several modes share have separate tables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin, is_typeddict

from _output.declared import Field, absent_of, answer_of, bases_of, doc_of, fields_of
from _output.export_tables import TABLES
from _output.fields import common

TEMPLATE = Path(__file__).with_name("fields_template.md")
WORD = r"\w+"
MARKER = re.compile(r"^\{\{(\w+)\}\}$", re.MULTILINE)
WORDS = {int: "integer", float: "number", str: "text", bool: "boolean", NoneType: "null"}
# A shared class with at least this number of fields has a separate table. The fields of a shared
# class with fewer fields are repeated in each class that inherits them.
FEW_FIELDS = 4
# Classes that have a section of their own, and the section's anchor.
SECTIONS = {common.StepAnswer: "step", common.Lead: "lead", common.AbsentAnswer: "absent"}
# Classes whose fields are never repeated, and the link that the page shows instead.
LINKS = {
    common.StepAnswer: "all fields of [every mode of one step](#step)",
    common.StepFields: "all fields of [every mode of one step](#step)",
    common.Totals: "all fields of [`totals` in every mode of one step](#step-totals)",
    common.AbsentAnswer: "all fields of [every object without an answer](#absent)",
    common.OkAnswer: "the first five fields of [every mode of one step](#step)",
    common.Lead: "`headline` and `next_steps` ([what matters first](#what-matters-first))",
    common.FileAnswer: "the first six fields of [every mode of one step](#step)",
}
HEADER = ["| field | type | meaning |", "|---|---|---|"]


class Page:
    """Builds the tables of FIELDS.md. A shared class gets a table if another table mentions it."""

    def __init__(self) -> None:
        # For each shared class, the paths in answers that lead to objects of this class.
        self.shared: dict[Any, list[str]] = {}

    def section(self, name: str) -> str:
        """Return the tables for a marker of the template."""
        if name == "export_tables":
            return f"```sql\n{TABLES}```"
        if name == "shared":
            return "\n\n".join(self.shared_tables())
        for declared, anchor in SECTIONS.items():
            if name == anchor:
                return "\n".join([f'<a id="{name}"></a>', "", *Table(self, name).lines(declared)])
        table = Table(self, name)
        lines = table.lines(answer_of(name))
        refused = absent_of(name)
        if refused not in SECTIONS:
            table.anchor = f"{name}-refusal"
            lines += ["", "If there is no answer:", "", *table.lines(refused)]
        return "\n".join(lines)

    def shared_tables(self) -> Iterator[str]:
        done: set[Any] = set()
        # A shared table can mention more shared classes, so repeat until every class has a table.
        while left := [declared for declared in self.shared if declared not in done]:
            declared = left[0]
            done.add(declared)
            name = declared.__name__
            rows = Table(self, f"shared-{name}", name).lines(declared)
            printed = ", ".join(self.shared[declared])
            intro = f"{doc_of(declared)} These fields are in {printed}.".strip()
            yield "\n".join([f'<a id="shared-{name}"></a>', f"### {name}", "", intro, "", *rows])

    def mention(self, declared: Any, place: str) -> str:
        """Return a link to the table of a shared class, and remember `place`, the path of an object
        of this class."""
        places = self.shared.setdefault(declared, [])
        if place not in places:
            places.append(place)
        return f"[{declared.__name__}](#shared-{declared.__name__})"


class Table:
    """One table, with a row for each field of a class and of the objects inside it."""

    def __init__(self, page: Page, anchor: str, name: str = "") -> None:
        self.page, self.anchor = page, anchor
        self.name = name or anchor
        # For each class in the table, the path of its first object.
        self.paths: dict[Any, str] = {}

    def lines(self, declared: Any) -> list[str]:
        rows = list(self.rows(declared, ""))
        linked = self.links(declared, "")
        head = [f"Besides the fields in this table, the object has {linked}.", ""] if linked else []
        return [*head, *HEADER, *rows]

    def rows(self, declared: Any, path: str) -> Iterator[str]:
        """Yield the rows of an object, then the rows of the objects inside it."""
        objects = []
        for field in shown_fields(declared):
            place = f"{path}.{field.name}".lstrip(".")
            new = [
                (inner, place + brackets)
                for inner, brackets in classes_in(field.type)
                if not is_shared(inner) and inner not in self.paths
            ]
            for inner, _ in new:
                self.paths[inner] = place
            if new:
                objects.append((field, place, new))
            else:
                yield self.row(field, place, f"`{field.name}`", field.doc)
        for field, place, new in objects:
            meaning = [field.doc]
            for inner, inner_path in new:
                meaning += about(inner, self.links(inner, inner_path))
            path_of_object = new[0][1]
            yield self.row(field, place, f"**`{path_of_object}`**", " ".join(meaning))
            for inner, inner_path in new:
                yield from self.rows(inner, inner_path)

    def row(self, field: Field, place: str, shown: str, meaning: str) -> str:
        optional = "" if field.is_required else " (optional)"
        words = self.words(field.type, place)
        escaped = meaning.replace("|", r"\|")
        return f'| <a id="{self.anchor_of(place)}"></a>{shown} | {words}{optional} | {escaped} |'

    def anchor_of(self, place: str) -> str:
        return "-".join([self.anchor, *re.findall(WORD, place)])

    def links(self, declared: Any, path: str) -> str:
        """Return links to the shared classes that a class inherits from."""
        place = f"`{path}` in {self.name}" if path else self.name
        found = [
            LINKS.get(base) or f"all fields of {self.page.mention(base, place)}"
            for base in linked_bases(declared)
        ]
        return ", and ".join(found)

    def words(self, hint: Any, place: str) -> str:
        """Describe a type in words."""
        origin, parts = get_origin(hint), get_args(hint)
        if is_typeddict(hint):
            if is_shared(hint):
                return self.page.mention(hint, f"`{place}` in {self.name}")
            first = self.paths[hint]
            if first == place:
                return "object"
            return f"object as [`{first}`](#{self.name}-{'-'.join(re.findall(WORD, first))})"
        if origin is Annotated:
            kind, unit = parts
            text = " or text" if str in get_args(kind) else ""
            return f"{unit.name}{text}"
        if origin is Literal:
            return ", ".join(f"`{value}`" for value in parts)
        if origin is list:
            words = self.words(parts[0], f"{place}[]" if is_shared(parts[0]) else place)
            words = "objects" if words == "object" else words
            return f"list of ({words})" if get_origin(parts[0]) is UnionType else f"list of {words}"
        if origin is dict:
            words = self.words(parts[1], place)
            words = f"({words})" if get_origin(parts[1]) is UnionType else words
            return f"map: text → {words}"
        if parts:
            return " or ".join(self.words(part, place) for part in parts)
        return WORDS[hint]


def about(declared: Any, links: str) -> Iterator[str]:
    """Yield the sentences of a class's documentation, except the first, which only names the
    object. If there are links to inherited fields, also yield a sentence with the links."""
    _, *additions = re.split(r"(?<=\.) (?=[A-Z`])", doc_of(declared))
    yield from additions
    if links:
        yield f"The object also has {links}."


def is_shared(declared: Any) -> bool:
    return getattr(declared, "__module__", "") == "_output.fields.rows"


def linked_bases(declared: Any) -> list[Any]:
    """Return the base classes that the page links to instead of repeating their fields."""
    if declared in SECTIONS:
        return []
    linked = [
        base
        for base in bases_of(declared)
        if base in LINKS or (is_shared(base) and len(fields_of(base)) >= FEW_FIELDS)
    ]
    inherited = {base for linked_base in linked for base in bases_of(linked_base)}
    return [base for base in linked if base not in inherited]


def shown_fields(declared: Any) -> list[Field]:
    """Return the fields that the table of a class lists, optional fields last."""
    linked = {field.name for base in linked_bases(declared) for field in fields_of(base)}
    shown = [field for field in fields_of(declared) if field.name not in linked]
    return sorted(shown, key=lambda field: not field.is_required)


def classes_in(hint: Any, brackets: str = "") -> Iterator[tuple[Any, str]]:
    """Yield the object classes that a type contains, each with a `[]` for every list or map around
    it."""
    if is_typeddict(hint):
        yield hint, brackets
    inside = "[]" if get_origin(hint) in (list, dict) else ""
    if get_origin(hint) not in (Literal, Annotated):
        for part in get_args(hint):
            yield from classes_in(part, brackets + inside)


def fields_page() -> str:
    """Return the text of FIELDS.md."""
    page = Page()
    template = TEMPLATE.read_text(encoding="utf-8")
    return MARKER.sub(lambda marker: page.section(marker[1]), template)


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.write(fields_page())
