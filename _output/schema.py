"""Build the JSON Schema of a mode's answers from the declared fields."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, is_typeddict

from _output.declared import absent_of, answer_of, doc_of, fields_of

Json = dict[str, Any]

TYPES = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    NoneType: "null",
}


def schema_of(mode: str) -> Json:
    """Return the JSON Schema of everything that a mode prints on standard output."""
    answer, absent = answer_of(mode), absent_of(mode)
    objects: Json = {}
    found = [of_type(declared, objects) for declared in (answer, absent)]
    objects[answer.__name__]["properties"]["mode"]["enum"] = [mode]
    objects[absent.__name__]["properties"]["mode"]["enum"] = [mode, None]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"compute_breakdown PROFILE --mode {mode}",
        "description": "An answer, or an object that explains why there is no answer. x-unit is"
        " the unit of a figure.",
        "oneOf": found,
        "$defs": objects,
    }


def of_type(hint: Any, objects: Json) -> Json:
    """Return the schema of a type, and add the schemas of objects inside it to `objects`."""
    origin, parts = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        if hint.__name__ not in objects:
            objects[hint.__name__] = {}
            objects[hint.__name__] = of_object(hint, objects)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if origin is Annotated:
        kind, unit = parts
        least = {} if unit.minimum is None else {"minimum": unit.minimum}
        return {**of_type(kind, objects), **least, "x-unit": unit.name}
    if origin is Literal:
        return {"type": TYPES[type(parts[0])], "enum": list(parts)}
    if origin is list:
        return {"type": "array", "items": of_type(parts[0], objects)}
    if origin is dict:
        return {"type": "object", "additionalProperties": of_type(parts[1], objects)}
    if origin in (Union, UnionType):
        return of_union([of_type(part, objects) for part in parts])
    return {"type": TYPES[hint]}


def of_union(schemas: list[Json]) -> Json:
    """Return the schema of a value that fits one of several schemas, such as a type or null."""
    first, *others = schemas
    if others == [{"type": "null"}] and "type" in first:
        nullable = {**first, "type": [first["type"], "null"]}
        return {**nullable, "enum": [*first["enum"], None]} if "enum" in first else nullable
    return {"anyOf": schemas}


def of_object(declared: Any, objects: Json) -> Json:
    fields = fields_of(declared)
    return {
        "description": doc_of(declared) or f"Answer of {declared.__module__.rpartition('.')[2]}.",
        "type": "object",
        "properties": {
            field.name: {"description": field.doc, **of_type(field.type, objects)}
            for field in fields
        },
        "required": [field.name for field in fields if field.is_required],
        "additionalProperties": False,
    }
