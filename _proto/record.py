"""Value classes made from annotated fields, and properties that are computed once.

`dataclasses` and `functools` have both, but importing `dataclasses` takes a tenth of the time of a
whole run, and before Python 3.12 `cached_property` of `functools` takes a lock on every use.
"""

from __future__ import annotations

__all__ = ["cached_property", "record"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass as record
    from functools import cached_property
else:

    def record(cls):
        """Give a class slots, a constructor that takes its fields in order, == and a repr."""
        names = tuple(cls.__annotations__)
        members = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
        # A default value in the class would hide the slot.
        defaults = {name: members.pop(name) for name in names if name in members}
        arguments = [f"{name}=defaults[{name!r}]" if name in defaults else name for name in names]
        scope = {"defaults": defaults}
        body = "".join(f"\n    self.{name} = {name}" for name in names)
        exec(f"def __init__(self, {', '.join(arguments)}):{body}", scope)
        members |= {
            "__slots__": names,
            "__qualname__": cls.__qualname__,
            "__init__": scope["__init__"],
            "__eq__": equal,
            "__hash__": None,
            "__repr__": repr_of,
        }
        return type(cls.__name__, cls.__bases__, members)

    def equal(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def repr_of(self):
        fields = (f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__qualname__}({', '.join(fields)})"

    class cached_property:
        """Call a method once and keep the result as an attribute of the object."""

        def __init__(self, method):
            self.method = method
            self.__doc__ = method.__doc__

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            found = instance.__dict__[self.name] = self.method(instance)
            return found
