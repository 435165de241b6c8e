"""Replacement of the metaclass of all op classes, and of the base of metaclasses that other libraries derive from it.

Patching ``MetaObject.__call__`` would slow down variables and nodes, which it also creates. A derived metaclass gets
the new one as its base: otherwise an op class that uses it would have bases with two unrelated metaclasses.
"""

from __future__ import annotations

from typing import Any

from optdb.cache.singleton import SharingMeta, SingletonMeta
from optdb.host.api.graph import MetaObject, op_classes
from optdb.host.api.patching import Patch


def install() -> None:
    """Make constructors of all op classes return shared ops."""
    _exchange(MetaObject, SharingMeta)


def uninstall() -> None:
    """Restore the host's metaclass; :class:`~optdb.cache.SingletonOp` keeps its own."""
    _exchange(SharingMeta, MetaObject)


def _exchange(old: type, new: type) -> None:
    for cls in list(op_classes()):
        if type(cls) is old:
            cls.__class__ = new  # type: ignore[method-assign]  # mypy takes __class__ for a method
    for metaclass in type.__subclasses__(old):
        if metaclass not in (new, SingletonMeta):
            _rebase(metaclass, old, new)


def _rebase(metaclass: type, old: type, new: type) -> None:
    metaclass.__bases__ = tuple(new if base is old else base for base in metaclass.__bases__)


def _of_new_metaclass(metaclass: type, /, **kwargs: Any) -> None:
    """Rebase a metaclass that is derived from the host's while the cache is installed."""
    super(MetaObject, metaclass).__init_subclass__(**kwargs)  # type: ignore[misc]  # only asked of MetaObject's children
    if MetaObject in metaclass.__bases__:
        _rebase(metaclass, MetaObject, SharingMeta)


def metaclass_patch() -> Patch:
    """Return the patch for metaclasses that are defined while the cache is installed."""
    reason = "a metaclass of ops shares ops, too"
    return Patch(MetaObject, "__init_subclass__", classmethod(_of_new_metaclass), reason)
