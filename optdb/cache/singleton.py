"""SingletonOp: ops that are always shared, whether the cache is installed or not."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

from optdb.cache.construct import construct, store
from optdb.cache.copies import copy_of_shared
from optdb.cache.guard import delete_attribute, set_attribute
from optdb.host.api import identity
from optdb.host.api.graph import MetaObject, Op, PureOp


class SharingMeta(MetaObject):
    """Metaclass of ops that are shared; while the cache is installed, of all ops."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        return construct(cls, *args, **kwargs)


class SingletonMeta(SharingMeta):
    """Metaclass of :class:`SingletonOp`: sharing is permanent, and hashes are cached."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:  # noqa: N805
        super().__init__(name, bases, namespace)
        identity.quicken(cls)


def _restore(cls: type, state: Any) -> Any:
    """Restore a pickled op, and return the shared op that is equal to it."""
    op: Any = object.__new__(cls)
    if hasattr(op, "__setstate__"):
        op.__setstate__(state)
    elif state:
        vars(op).update(state)
    return store.share(op)


class SingletonOp(Op, metaclass=SingletonMeta):
    """An op with one object for each set of values of ``__props__``.

    Subclasses declare ``__props__`` and set them in ``__init__``, like any op of
    Theano; equality and hash follow from them. Other attributes that a
    constructor sets also count: ops that differ in them are different objects.

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
