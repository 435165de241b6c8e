"""SingletonOp, for ops that are always shared, and the metaclasses of shared ops.

While the cache is installed, `SharingMeta` replaces the host's metaclass in all op classes and in the bases of derived
metaclasses. Patching ``MetaObject.__call__`` instead would also slow down the creation of variables and nodes.
"""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

from optdb.cache.construct import construct, store
from optdb.cache.guard import delete_attribute, set_attribute
from optdb.cache.op_copies import copy_of_shared
from optdb.host.api import identity
from optdb.host.api.graph import MetaObject, Op, PureOp, op_classes
from optdb.host.api.patching import Patch


class SharingMeta(MetaObject):
    """Metaclass of shared ops; while the cache is installed, it is the metaclass of all ops."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        return construct(cls, *args, **kwargs)


class SingletonMeta(SharingMeta):
    """Metaclass of :class:`SingletonOp`, whose ops are always shared and cache their hashes."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:  # noqa: N805
        super().__init__(name, bases, namespace)
        identity.quicken(cls)


def _restore(cls: type, state: Any) -> Any:
    op: Any = object.__new__(cls)
    if hasattr(op, "__setstate__"):
        op.__setstate__(state)
    elif state:
        vars(op).update(state)
    return store.share(op)


class SingletonOp(Op, metaclass=SingletonMeta):
    """Base class for ops that exist only once for each combination of ``__props__`` values.

    Subclasses declare ``__props__`` and set them in ``__init__``, like any Theano op. Two ops are the same object only
    if all other attributes that the constructor sets are also equal.

    Parameters
    ----------
    *args, **kwargs : objects
        The parameters of the subclass's constructor.

    Examples
    --------
    >>> import optdb
    >>> class Scale(optdb.cache.SingletonOp):
    ...     __props__ = ("factor",)
    ...     def __init__(self, factor=2):
    ...         self.factor = factor
    >>> Scale() is Scale(2) is Scale(factor=2)
    True
    """

    def __copy__(self) -> PureOp:
        return copy_of_shared(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> PureOp:
        return copy_of_shared(self, memo)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        state = object.__reduce_ex__(self, max(operator.index(protocol), 2))[2]
        return _restore, (type(self), state)

    if __debug__:
        __setattr__ = set_attribute
        __delattr__ = delete_attribute


def share_all_classes() -> None:
    """Make constructors of all op classes return shared ops."""
    _exchange(MetaObject, SharingMeta)


def restore_all_classes() -> None:
    """Give all op classes the host's metaclass again, except for :class:`~optdb.cache.SingletonOp`."""
    _exchange(SharingMeta, MetaObject)


def _exchange(old: type, new: type) -> None:
    for cls in list(op_classes()):
        if type(cls) is old:
            cls.__class__ = new  # type: ignore[method-assign]  # mypy mistakes __class__ for a method
    for metaclass in type.__subclasses__(old):
        if metaclass not in (new, SingletonMeta):
            _rebase(metaclass, old, new)


def _rebase(metaclass: type, old: type, new: type) -> None:
    metaclass.__bases__ = tuple(new if base is old else base for base in metaclass.__bases__)


def _of_new_metaclass(metaclass: type, /, **kwargs: Any) -> None:
    """Make `SharingMeta` the base of a metaclass that is defined while the cache is installed."""
    super(MetaObject, metaclass).__init_subclass__(**kwargs)  # type: ignore[misc]  # it derives from MetaObject
    if MetaObject in metaclass.__bases__:
        _rebase(metaclass, MetaObject, SharingMeta)


def metaclass_patch() -> Patch:
    """Return the patch for metaclasses that are defined while the cache is installed."""
    reason = "op classes with a metaclass of their own share ops as well"
    return Patch(MetaObject, "__init_subclass__", classmethod(_of_new_metaclass), reason)
