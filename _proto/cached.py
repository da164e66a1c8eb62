"""Define a property that is computed once.

Before Python 3.12, `functools.cached_property` takes a lock on every first use, which triples the
time of that use. Mode `bottleneck` has 5 600 first uses on the demo, so the locks would take about
4 % of its time.
"""

from __future__ import annotations

__all__ = ["cached_property"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from functools import cached_property
else:

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
