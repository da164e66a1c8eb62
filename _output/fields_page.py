"""Write FIELDS.md from the declared fields: `python -m _output.fields_page >FIELDS.md`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, is_typeddict

from _output.declared import absent_of, answer_of, bases_of, doc_of, fields_of
from _output.fields import common

TEMPLATE = Path(__file__).with_name("fields_template.md")
WORDS = {int: "integer", float: "number", str: "text", bool: "boolean", NoneType: "null"}
# A class with more fields has a table of its own; the fields of a smaller one are repeated in the
# tables of the classes that inherit from it.
FEW_FIELDS = 10
STEP = "every mode of one step"
EVERYWHERE = {common.StepAnswer, common.StepFields, common.AbsentAnswer}


class Table(NamedTuple):
    """The table of one class: its anchor, its heading and the paths of its objects."""

    anchor: str
    heading: str
    paths: list[str]


class Page:
    """Every table of the page by its class. A class belongs to the section of its module."""

    def __init__(self, modes: list[str]) -> None:
        self.tables: dict[Any, Table] = {}
        self.tables[common.StepFields] = Table("step", STEP, [])
        self.add(common.StepAnswer, "step", STEP, "")
        self.add(common.AbsentAnswer, "absent", "every refusal", "")
        for mode in modes:
            self.add(answer_of(mode), mode, mode, "")
            self.add(absent_of(mode), mode, mode, "refusal")

    def add(self, declared: Any, section: str, of: str, path: str, is_base: bool = False) -> None:
        """Add a class whose objects are at this path in the answers `of` a mode, and the classes of
        its fields."""
        place = f"`{path}` in {of}" if path else of
        if declared not in self.tables:
            if is_shared(declared) and section == of:
                table = Table(f"shared-{declared.__name__}", declared.__name__, [])
            elif is_base:
                table = Table(f"{section}-{declared.__name__}", f"{declared.__name__} in {of}", [])
            else:
                table = Table("-".join([section, *re.findall(r"\w+", path)]), place, [])
            self.tables[declared] = table
        self.tables[declared].paths.append(place)
        for base in linked_bases(declared):
            if base not in EVERYWHERE:
                self.add(base, section, of, path, is_base=True)
        for field in shown_fields(declared):
            for inner, brackets in classes_in(field.type):
                self.add(inner, section, of, f"{path}.{field.name}{brackets}".lstrip("."))

    def section(self, name: str) -> str:
        """Return all tables whose anchor begins with this name."""
        found = [
            self.table(declared, table)
            for declared, table in self.tables.items()
            if table.anchor.partition("-")[0] == name and declared is not common.StepFields
        ]
        return "\n\n".join(found)

    def table(self, declared: Any, table: Table) -> str:
        is_top = "-" not in table.anchor
        lines = [] if is_top else [f'<a id="{table.anchor}"></a>', f"### {table.heading}", ""]
        if table.anchor in ("step", "absent"):
            lines = [f'<a id="{table.anchor}"></a>', ""]
        said = [doc_of(declared)] if doc_of(declared) and not is_top else []
        if table.anchor.startswith("shared-"):
            said.append(f"Printed as {', '.join(dict.fromkeys(table.paths))}.")
        linked = [f"[{self.tables[each].heading}](#{self.tables[each].anchor})"
                  for each in linked_bases(declared)]  # fmt: skip
        if linked:
            said.append(f"It has all fields of {' and '.join(linked)}, and:")
        if said:
            lines += [" ".join(said), ""]
        lines += ["| field | type | meaning |", "|---|---|---|"]
        for field in shown_fields(declared):
            optional = "" if field.is_required else " (optional)"
            anchor = f"{table.anchor}-{field.name}"
            # The table of the field's objects has this anchor.
            is_taken = any(each.anchor == anchor for each in self.tables.values())
            anchor = "" if is_taken else f'<a id="{anchor}"></a>'
            doc = field.doc.replace("|", r"\|")
            lines.append(f"| {anchor}`{field.name}` | {self.words(field.type)}{optional} | {doc} |")
        return "\n".join(lines)

    def words(self, of: Any) -> str:
        """Describe a type in words."""
        origin, parts = get_origin(of), get_args(of)
        if is_typeddict(of):
            return f"[{of.__name__}](#{self.tables[of].anchor})"
        if origin is Annotated:
            kind, unit = parts
            text = " or text" if str in get_args(kind) else ""
            return f"{unit.name}{text}"
        if origin is Literal:
            return ", ".join(f"`{each}`" for each in parts)
        if origin is list:
            each = self.words(parts[0])
            return f"list of ({each})" if get_origin(parts[0]) is UnionType else f"list of {each}"
        if origin is dict:
            return f"map: text → {self.words(parts[1])}"
        return " or ".join(map(self.words, parts)) if parts else str(WORDS[of])


def is_shared(declared: Any) -> bool:
    return declared.__module__ in ("_output.fields.common", "_output.fields.rows")


def linked_bases(declared: Any) -> list[Any]:
    """Return the bases that have a table of their own, without the bases of those."""
    if declared is common.StepAnswer:
        return []
    # The fields of a mode are in the table of its answer.
    large = [
        base
        for base in bases_of(declared)
        if len(fields_of(base)) > FEW_FIELDS and base.__name__ != "Fields"
    ]
    inherited = {base for each in large for base in bases_of(each)}
    return [each for each in large if each not in inherited]


def shown_fields(declared: Any) -> list[Any]:
    """Return the fields that the table of a class lists, the optional ones last."""
    linked = {field.name for base in linked_bases(declared) for field in fields_of(base)}
    shown = [field for field in fields_of(declared) if field.name not in linked]
    return sorted(shown, key=lambda field: not field.is_required)


def classes_in(of: Any, brackets: str = "") -> Iterator[tuple[Any, str]]:
    """Yield the classes of objects in a type, each with `[]` for each list or map around it."""
    if is_typeddict(of):
        yield of, brackets
    inside = "[]" if get_origin(of) in (list, dict) else ""
    if get_origin(of) not in (Literal, Annotated):
        for part in get_args(of):
            yield from classes_in(part, brackets + inside)


def fields_page() -> str:
    """Return the text of FIELDS.md."""
    template = TEMPLATE.read_text(encoding="utf-8")
    markers = re.findall(r"^\{\{(\w+)\}\}$", template, re.MULTILINE)
    page = Page([name for name in markers if name not in ("step", "shared", "absent")])
    return re.sub(
        r"^\{\{(\w+)\}\}$", lambda marker: page.section(marker[1]), template, flags=re.MULTILINE
    )


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.write(fields_page())
