"""Lets the op classes of the host take part, and puts everything back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

from optdb.cache.construct import construct, store
from optdb.cache.guard import set_attribute
from optdb.cache.singleton import SingletonOp
from optdb.cache.stats import Stats
from optdb.host import identity, scans
from optdb.host.graph import MetaObject, PureOp
from optdb.host.patching import Patch, Switch


class _Call:
    """What a class of the host does when it is called: ops are shared, the rest is made as ever.

    It is a descriptor so that it is done before the call is: creation traces of variables,
    which users read, show no line of it.
    """

    def __get__(self, cls: type | None, metaclass: type) -> Any:
        if cls is None:
            return self
        if issubclass(cls, PureOp):
            return partial(construct, cls)
        return partial(type.__call__, cls)


_lock = threading.RLock()
_patches = [Patch(MetaObject, "__call__", _Call())]
if __debug__:
    _patches.append(Patch(PureOp, "__setattr__", set_attribute))


def install() -> Switch:
    """Let constructing an op give the one object that is like it, for all op classes.

    Ops that modules have as their attributes, like ``theano.tensor.add``, are the ones that
    are given from now on.

    Returns
    -------
    Switch
        Usable as a context manager, which puts things back as they were.

    Examples
    --------
    >>> import optdb, theano.tensor as T
    >>> with optdb.cache.install():
    ...     T.DimShuffle((False,), (0, "x")) is T.DimShuffle((False,), [0, "x"])
    True
    """
    with _lock:
        was_installed = is_installed()
        if not was_installed:
            _install()
    return Switch(uninstall, was_installed)


def _install() -> None:
    for patch in _patches:
        patch.install()
    scans.install(store.share)
    identity.install("cache")
    for op in _ops_by_name():
        store.share(op)


def uninstall() -> None:
    """Let op classes make a new op each time again. Ops that are shared stay as they are."""
    with _lock:
        for patch in _patches:
            patch.uninstall()
        scans.uninstall()
        store.forget(keep=SingletonOp)
        identity.uninstall("cache")


def is_installed() -> bool:
    """Tell whether the op classes of the host take part."""
    return _patches[0].installed


def stats() -> Stats:
    """Return what became of the ops that were asked for, and which could not be shared and why."""
    return store.counts.report(is_installed(), len(store))


def _ops_by_name() -> Iterator[PureOp]:
    """Yield the ops that modules have as their attributes, in the order they were imported."""
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            if isinstance(value, PureOp):
                yield value
