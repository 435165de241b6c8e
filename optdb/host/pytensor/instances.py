"""A faster ``isinstance`` for classes of PyTensor: ops, types, variables, graphs.

Their metaclass derives from ``ABCMeta``, whose test is a Python function, for virtual subclasses. Without these, only
inheritance matters, and `type` tests that in C.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from typing import Any

from pytensor.graph.utils import MetaObject, MetaType

from optdb.host.api.patching import Wrapper, around


def _by_inheritance(check: Callable[..., bool]) -> Callable[..., bool]:
    """Return the instance check of `type`, or `check` if a class may have virtual subclasses."""
    return check if any(map(_may_have_virtual_subclasses, _subclasses(MetaObject))) else type.__instancecheck__


def _may_have_virtual_subclasses(cls: type) -> bool:
    registered = abc._get_dump(cls)[0]  # type: ignore[attr-defined]
    return bool(registered) or "__subclasshook__" in vars(cls)


def _subclasses(cls: type) -> Iterator[type]:
    yield cls
    for subclass in type.__subclasses__(cls):
        if isinstance(subclass, abc.ABCMeta):
            yield from _subclasses(subclass)


_FASTER_CHECK = Wrapper(MetaType, "__instancecheck__", _by_inheritance, "no class has virtual subclasses")


@around
def _restoring_the_check(register: Callable[..., Any], cls: Any, subclass: Any) -> Any:
    _FASTER_CHECK.uninstall()
    return register(cls, subclass)


PATCHES = [
    _FASTER_CHECK,
    Wrapper(MetaType, "register", _restoring_the_check, "virtual subclasses need PyTensor's own test"),
]
