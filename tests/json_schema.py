"""Validate JSON with the keywords of JSON Schema that `--schema` uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]

# These keywords do not restrict values.
ANNOTATIONS = {"$schema", "$defs", "title", "description", "x-unit"}
# Unlike the JSON Schema standard, this validator does not accept 1.0 as an integer.
IS_OF_TYPE: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


class Validator:
    """Validate values; call `on_field` with the description and the value of each field in each
    object."""

    def __init__(self, schema: Json, on_field: Callable[[str, Any], None] | None = None):
        self.schema, self.on_field = schema, on_field

    def errors(self, value: Any) -> list[str]:
        return list(self.check(value, self.schema, ""))

    def check(self, value: Any, schema: Json, where: str) -> Iterator[str]:
        for keyword, wanted in schema.items():
            if keyword in ANNOTATIONS:
                continue
            check = getattr(self, f"check_{keyword.removeprefix('$')}", None)
            if check is None:
                raise ValueError(f"unknown keyword {keyword}")
            yield from check(value, wanted, schema, where)

    def check_ref(self, value: Any, wanted: str, _: Json, where: str) -> Iterator[str]:
        yield from self.check(value, self.schema["$defs"][wanted.removeprefix("#/$defs/")], where)

    def check_type(self, value: Any, wanted: str | list[str], _: Json, where: str) -> Iterator[str]:
        types = [wanted] if isinstance(wanted, str) else wanted
        if not any(IS_OF_TYPE[name](value) for name in types):
            yield f"{where}: {value!r:.60} is not of type {wanted}"

    def check_enum(self, value: Any, wanted: list[Any], _: Json, where: str) -> Iterator[str]:
        if value not in wanted:
            yield f"{where}: {value!r:.60} is not one of {wanted}"

    def check_minimum(self, value: Any, wanted: int, _: Json, where: str) -> Iterator[str]:
        if IS_OF_TYPE["number"](value) and value < wanted:
            yield f"{where}: {value} is less than {wanted}"

    def check_items(self, value: Any, wanted: Json, _: Json, where: str) -> Iterator[str]:
        for i, element in enumerate(value if isinstance(value, list) else []):
            yield from self.check(element, wanted, f"{where}[{i}]")

    def check_properties(self, value: Any, wanted: Json, _: Json, where: str) -> Iterator[str]:
        for name, property_schema in wanted.items():
            if isinstance(value, dict) and name in value:
                if self.on_field:
                    self.on_field(property_schema["description"], value[name])
                yield from self.check(value[name], property_schema, f"{where}.{name}")

    def check_required(self, value: Any, wanted: list[str], _: Json, where: str) -> Iterator[str]:
        for name in wanted:
            if isinstance(value, dict) and name not in value:
                yield f"{where}.{name} is missing"

    def check_additionalProperties(
        self, value: Any, wanted: Json | bool, schema: Json, where: str
    ) -> Iterator[str]:
        if not isinstance(value, dict):
            return
        for name in value.keys() - schema.get("properties", {}).keys():
            if isinstance(wanted, bool):
                if not wanted:
                    yield f"{where}.{name} is not declared"
            else:
                yield from self.check(value[name], wanted, f"{where}.{name}")

    def check_oneOf(self, value: Any, wanted: list[Json], _: Json, where: str) -> Iterator[str]:
        yield from self.matching(value, wanted, where, at_most=1)

    def check_anyOf(self, value: Any, wanted: list[Json], _: Json, where: str) -> Iterator[str]:
        yield from self.matching(value, wanted, where, at_most=len(wanted))

    def matching(self, value: Any, wanted: list[Json], where: str, at_most: int) -> Iterator[str]:
        """Yield an error if no schema matches, or if more than `at_most` schemas match."""
        found = [list(Validator(self.schema).check(value, schema, where)) for schema in wanted]
        matching = [schema for schema, errors in zip(wanted, found, strict=True) if not errors]
        if not matching:
            yield min(found, key=len)[0]
        elif len(matching) > at_most:
            yield f"{where}: more than {at_most} schemas match"
        else:
            # Check the matching schema again, this time calling `on_field`.
            yield from self.check(value, matching[0], where)
