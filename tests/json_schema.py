"""Validate JSON with the keywords of JSON Schema that `--schema` uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any

Json = dict[str, Any]
# Returns the errors of a value, each of which begins with the path inside the value.
Check = Callable[[Any], Sequence[str]]

# These keywords do not restrict values.
ANNOTATIONS = {"$schema", "$defs", "title", "description", "x-unit"}
RESTRICTIONS = {"type", "enum", "minimum", "items", "properties", "required"}
# Unlike the JSON Schema standard, this validator does not accept 1.0 as an integer.
TYPES: dict[str, tuple[type, ...]] = {
    "null": (NoneType,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}


class Validator:
    """Validate values; call `on_field` with the description and the value of each field in each
    object."""

    def __init__(self, schema: Json, on_field: Callable[[str, Any], None] | None = None):
        self.on_field = on_field
        self.defs = schema.get("$defs", {})
        self.shared: dict[str, Check] = {}
        # A test runs many answers through the same schema, so prepare a function for each part.
        self.errors = self.check_of(schema)

    def check_of(self, schema: Json) -> Check:
        keywords = schema.keys() - ANNOTATIONS
        if keywords == {"$ref"}:
            return self.shared_check(schema["$ref"].removeprefix("#/$defs/"))
        if keywords in ({"anyOf"}, {"oneOf"}):
            return self.union_check([self.check_of(part) for part in schema[keywords.pop()]])
        if unknown := keywords - RESTRICTIONS - {"additionalProperties"}:
            raise ValueError(f"unknown keywords {sorted(unknown)}")
        return self.value_check(schema)

    def shared_check(self, name: str) -> Check:
        if name not in self.shared:
            self.shared[name] = self.check_of(self.defs[name])
        return self.shared[name]

    def union_check(self, checks: Sequence[Check]) -> Check:
        def check(value: Any) -> Sequence[str]:
            # Call `on_field` only for the alternative that matches.
            on_field, self.on_field = self.on_field, None
            found = [alternative(value) for alternative in checks]
            self.on_field = on_field
            least = min(found, key=len)
            return least if least or not on_field else checks[found.index(least)](value)

        return check

    def value_check(self, schema: Json) -> Check:
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        types = {kind for name in names for kind in TYPES[name]}
        allowed, minimum = schema.get("enum"), schema.get("minimum")
        of_items = self.check_of(schema["items"]) if "items" in schema else None
        of_fields = self.fields_check(schema) if "object" in names else None

        def check(value: Any) -> Sequence[str]:
            if type(value) not in types:
                return [f" is {value!r:.60}, not {' or '.join(names)}"]
            if allowed is not None and value not in allowed:
                return [f" is {value!r:.60}, not one of {', '.join(map(repr, allowed))}"]
            if minimum is not None and value is not None and value < minimum:
                return [f" is {value}, less than {minimum}"]
            if of_items and value:
                return [f"[{i}]{error}" for i, item in enumerate(value) for error in of_items(item)]
            return of_fields(value) if of_fields and value is not None else ()

        return check

    def fields_check(self, schema: Json) -> Check:
        fields = {
            name: (field.get("description"), self.check_of(field))
            for name, field in schema.get("properties", {}).items()
        }
        required, others = {*schema.get("required", ())}, schema["additionalProperties"]
        of_other = self.check_of(others) if others else None

        def check(value: Json) -> Sequence[str]:
            found = [f".{name} is missing" for name in required - value.keys()]
            for name, inner in value.items():
                if name in fields:
                    description, of_field = fields[name]
                    if self.on_field and description:
                        self.on_field(description, inner)
                    found += [f".{name}{error}" for error in of_field(inner)]
                elif of_other:
                    found += [f".{name}{error}" for error in of_other(inner)]
                else:
                    found.append(f".{name} is not declared on FIELDS.md")
            return found

        return check
