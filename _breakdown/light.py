"""Define tools of the standard library anew, because the originals take much time.

`typing.NamedTuple` compiles the type of each field, which takes 0.3 ms per class, and mode
`bottleneck` imports 100 such classes. These tuples have no `_make` and no `_asdict`.

Before Python 3.12, `functools.cached_property` takes a lock on every first use, which triples the
time of that use. Mode `bottleneck` has 5 600 first uses on the demo, so the locks would take about
4 % of its time.

Modules that `--help` loads import `typing` and `collections.abc` only for type checkers, so they
take `TYPE_CHECKING` from here. The command gives the others a stand-in, because the import of
`typing` takes 5 ms.
"""

from __future__ import annotations

import sys

__all__ = ["TYPE_CHECKING", "NamedTuple", "cached_property", "leave_out_modules"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from functools import cached_property
    from typing import NamedTuple

    def leave_out_modules() -> None: ...

else:
    # The same descriptors as in `collections.namedtuple`, without the import of `collections`.
    from _collections import _tuplegetter
    from _thread import allocate_lock
    from importlib import import_module
    from types import FunctionType, ModuleType

    CODES = {}

    class Fields(tuple):
        """Hold what all named tuples have in common."""

        __slots__ = ()

        def __repr__(self):
            values = ", ".join(map("{}={!r}".format, self._fields, self))
            return f"{type(self).__name__}({values})"

        def __getnewargs__(self):
            return tuple(self)

        def _replace(self, **changes):
            made = tuple.__new__(type(self), map(changes.pop, self._fields, self))
            if changes:
                raise TypeError(f"{type(self).__name__} has no fields {list(changes)}")
            return made

    def code_for(n_fields):
        """Return the code of a function that makes a tuple of its arguments."""
        if n_fields not in CODES:
            names = ", ".join(f"_{i}" for i in range(n_fields))
            CODES[n_fields] = eval(f"lambda cls, {names}: new(cls, ({names},))").__code__
        return CODES[n_fields]

    class Maker(type):
        """Make a class of named tuples from annotations, which are texts in all modules here."""

        def __new__(cls, name, bases, namespace):
            fields = tuple(namespace["__annotations__"])
            # Compiling takes long, so rename the arguments of a function with as many fields.
            code = code_for(len(fields)).replace(co_varnames=("cls", *fields))
            new = FunctionType(code, {"new": tuple.__new__})
            new.__defaults__ = tuple([namespace[field] for field in fields if field in namespace])
            getters = {field: _tuplegetter(i, None) for i, field in enumerate(fields)}
            more = {"__slots__": (), "__new__": new, "_fields": fields}
            return type(name, (Fields,), namespace | getters | more)

    NamedTuple = type.__new__(Maker, "NamedTuple", (), {})

    class Anything:
        """A type, a base class, or a maker of types."""

        def __init__(self, *_, **__):
            pass

        def __class_getitem__(cls, _):
            return cls

        def __call__(self):
            """Be callable, as Python 3.10 demands of a type."""

    class StandIn(ModuleType):
        """Stand in for a module; import the module for names that the stand-in lacks."""

        def __init__(self, name, **names):
            super().__init__(name)
            vars(self).update(names)

        def __getattr__(self, name):
            if name.startswith("__"):
                # The import system asks for `__path__`.
                raise AttributeError(name)
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            return getattr(import_module(self.__name__), name)

    class cached_property:
        """Compute a value on first use, and store it as an attribute of the object."""

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

    def leave_out_modules():
        """Let the command import modules without the parts that it does not use.

        That is all of `typing` but names for annotations, all of `threading` but the lock that
        protobuf uses, and the base classes of protobuf's own messages, such as times. In another
        program, other code may need them.
        """
        names = "Any ClassVar Final IO Literal Protocol TextIO TypeAlias TypeVar".split()
        well_known_types = "google.protobuf.internal.well_known_types"
        for module in (
            StandIn("typing", **dict.fromkeys(names, Anything)),
            StandIn("threading", Lock=allocate_lock),
            StandIn(well_known_types, WKTBASES={}),
        ):
            sys.modules.setdefault(module.__name__, module)
