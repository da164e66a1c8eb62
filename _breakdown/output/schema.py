"""Build the JSON Schema of a mode's answers from FIELDS.md, the page that declares every field.

The page begins with its grammar, which this file implements. Only `--schema`, the header of a CSV
without rows, and the tests read the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from _breakdown.light import NamedTuple
from _breakdown.output.pages import page_named

Json = dict[str, Any]

HEADER_OF_FIELDS = ["field", "type", "meaning"]
HEADER_OF_TYPES = ["type", "JSON", "meaning"]
# The types of JSON Schema by their words on the page.
JSON_TYPES = {
    "boolean": "boolean",
    "integer": "integer",
    "number": "number",
    "text": "string",
    "null": "null",
}
BAR = re.compile(r"(?<!\\)\|")
LINK = re.compile(r"\[(\w+)\]\(#\w+\)")
# Separates alternatives, but not within parentheses.
OR = re.compile(r" or (?![^(]*\))")
OBJECT = re.compile(r"objects?(?: with (?P<shared>[\w, ]+))?")
MAP_OF = re.compile(r"map of (?P<keys>`[^()]*`) to (?P<values>.+)")
OPTIONAL = " (optional)"
ONLY_WITH_ALL = "Only with `--all`: "


class Row(NamedTuple):
    """A row of a table of fields: a path such as `causes[].rank`, a type, and a sentence."""

    path: str
    type: str
    meaning: str


def schema_of(mode: str, page: str = "", *, with_all: bool = False) -> Json:
    """Return the JSON Schema of everything that a mode prints on standard output; `with_all` for
    answers with --all."""
    text = page or page_named("FIELDS.md")
    declared = DeclaredFields(text)
    if not with_all:
        declared.optional = declared.only_with_all(mode, text)
    answer = declared.object_at(mode, "", declared.objects[mode]["."].type)
    answer["properties"]["mode"]["enum"] = [mode]
    refused = f"Absent in {mode}" if f"Absent in {mode}" in declared.objects else "Absent"
    absent = declared.object_at(refused, "", declared.objects[refused]["."].type)
    absent["properties"]["mode"]["enum"] = [mode, None]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"compute_breakdown PROFILE --mode {mode}",
        "description": "An answer, or an object that explains why there is no answer. x-unit is"
        " the unit of a figure.",
        "oneOf": [answer, absent],
        "$defs": declared.shared,
    }


def rows_of_tables(page: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the heading above, the table's header and the cells of each row on the page."""
    heading = ""
    header: list[str] = []
    for line in page.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip().replace(r"\|", "|") for cell in BAR.split(line)[1:-1]]
        if not header:
            header = cells
        elif set(cells) != {"---"}:
            yield heading, header, cells


class DeclaredFields:
    """The declarations on the page, from which it builds schemas."""

    def __init__(self, page: str) -> None:
        # The rows of each object: an answer by its mode, a shared object by its name.
        self.objects: dict[str, dict[str, Row]] = {}
        # Types that the page defines, such as units, by name.
        self.types: dict[str, str] = {}
        # Fields, and objects whose fields, the answer has only with --all.
        self.optional: set[str] = set()
        # The schemas of the shared objects that the schemas so far refer to.
        self.shared: Json = {}
        for heading, header, cells in rows_of_tables(page):
            if header == HEADER_OF_TYPES:
                self.types[cells[0].strip("`")] = cells[1]
            elif header == HEADER_OF_FIELDS:
                row = Row(cells[0].strip("`"), LINK.sub(r"\1", cells[1]), cells[2])
                self.objects.setdefault(heading, {})[row.path] = row

    def only_with_all(self, mode: str, page: str) -> set[str]:
        """Return the names of the fields and objects that the mode prints only with --all."""
        _, _, section = page.partition(f"\n## {mode}\n")
        lines = section.partition("\n## ")[0].splitlines()
        line = next((line for line in lines if line.startswith(ONLY_WITH_ALL)), "")
        return set(re.findall(r"`(\w+)`", LINK.sub(r"`\1`", line)))

    def object_at(self, name: str, path: str, words: str) -> Json:
        """Return the schema of the object `name`, or of the object at a path inside it."""
        fields = self.fields_of(name, path, words)
        required = [
            field
            for field, (of, row) in fields.items()
            if not row.type.endswith(OPTIONAL) and self.optional.isdisjoint((field, of))
        ]
        properties = {
            field: {
                "description": row.meaning,
                **self.of_type(row.type.removesuffix(OPTIONAL), of, row.path),
            }
            for field, (of, row) in fields.items()
        }
        meaning = self.objects[name][path or "."].meaning
        return {"description": meaning, **closed(properties, required)}

    def fields_of(self, name: str, path: str, words: str) -> dict[str, tuple[str, Row]]:
        """Return the object and the row that declare each field of the object at a path. A row
        of the object itself replaces the row of a shared object."""
        fields: dict[str, tuple[str, Row]] = {}
        match = OBJECT.search(words)
        for shared in re.findall(r"\w+", match["shared"] or "") if match else ():
            fields |= self.fields_of(shared, "", self.objects[shared]["."].type)
        for row in self.objects[name].values():
            parent, _, field = row.path.rpartition(".")
            if field and parent.replace("[]", "") == path.replace("[]", ""):
                fields[field] = name, row
        return fields

    def of_type(self, words: str, name: str, path: str) -> Json:
        """Return the schema of the type of the field of `name` at a path."""
        alternatives = OR.split(words)
        if len(alternatives) > 1:
            return of_union([self.of_type(part, name, path) for part in alternatives])
        if words.startswith("("):
            return self.of_type(words[1:-1], name, path)
        if words.startswith("`"):
            return of_set(re.findall("`(.*?)`", words))
        if words.startswith("list of "):
            return {"type": "array", "items": self.of_type(words[8:], name, path)}
        if words.startswith("map to "):
            of_values = self.of_type(words[7:], name, path)
            return {"type": "object", "additionalProperties": of_values}
        if match := MAP_OF.fullmatch(words):
            keys = match["keys"][1:-1].split("`, `")
            return closed(dict.fromkeys(keys, self.of_type(match["values"], name, path)), keys)
        if OBJECT.fullmatch(words):
            return self.object_at(name, path, words)
        if words in self.objects:
            if words not in self.shared:
                self.shared[words] = {}
                self.shared[words] = self.object_at(words, "", self.objects[words]["."].type)
            return {"$ref": f"#/$defs/{words}"}
        if words in self.types:
            return of_unit(words, self.of_type(self.types[words], name, path))
        kind, _, minimum = words.partition(", at least ")
        if kind not in JSON_TYPES:
            raise ValueError(f"FIELDS.md, {path} of {name}: no type is named {words!r}")
        least = {"minimum": int(minimum)} if minimum else {}
        return {"type": JSON_TYPES[kind], **least}


def closed(properties: Json, required: list[str]) -> Json:
    """Return the schema of an object that has only these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def of_unit(name: str, schema: Json) -> Json:
    return {**schema, "x-unit": name} if schema.get("type") in ("integer", "number") else schema


def of_set(values: list[str]) -> Json:
    """Return the schema of one of several values. Digits are a number."""
    if all(value.isdecimal() for value in values):
        return {"type": "integer", "enum": [int(value) for value in values]}
    return {"type": "string", "enum": values}


def of_union(schemas: list[Json]) -> Json:
    """Return the schema of a value that fits one of several schemas, such as a type or null."""
    first, *others = schemas
    if others == [{"type": "null"}] and "type" in first:
        nullable = {**first, "type": [first["type"], "null"]}
        return {**nullable, "enum": [*first["enum"], None]} if "enum" in first else nullable
    return {"anyOf": schemas}
