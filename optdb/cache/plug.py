"""Installs the op cache for the op classes of the host, and uninstalls it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

from optdb.cache import metaclasses
from optdb.cache.construct import store
from optdb.cache.copies import copy_patches
from optdb.cache.guard import delete_attribute, set_attribute
from optdb.cache.singleton import SingletonOp
from optdb.cache.stats import Stats
from optdb.host.api import identity, scans
from optdb.host.api.graph import PureOp
from optdb.host.api.patching import Patch, PatchGroup, Switch

_lock = threading.RLock()
_REASON = "a change to a shared op is a change to all graphs with it"
_guards = [
    Patch(PureOp, "__setattr__", set_attribute, _REASON),
    Patch(PureOp, "__delattr__", delete_attribute, _REASON),
]
_patches = PatchGroup(
    "Singleton ops",
    "from optdb.cache.install() on",
    "optdb.cache.uninstall()",
    [*copy_patches(), metaclasses.metaclass_patch(), *(_guards if __debug__ else [])],
)
_installed = threading.Event()


def install() -> Switch:
    """Return the existing equal op from constructors, for all op classes.

    Ops that modules have as their attributes, like ``theano.tensor.add``, become the shared ones.

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
    _installed.set()
    _patches.install()
    metaclasses.install()
    scans.install(store.share)
    identity.install("cache")
    for op in _ops_by_name():
        store.share(op)


def uninstall() -> None:
    """Make a new op in each call of an op class again. Shared ops stay as they are."""
    with _lock:
        _installed.clear()
        _patches.uninstall()
        metaclasses.uninstall()
        scans.uninstall()
        store.forget(keep=SingletonOp)
        identity.uninstall("cache")


def is_installed() -> bool:
    """Tell whether the op classes of the host take part.

    Returns
    -------
    bool
        Whether `install` is in force.
    """
    return _installed.is_set()


def stats() -> Stats:
    """Return how often constructors returned shared ops, and which ops were not shared and why.

    Returns
    -------
    Stats
        The counters as they are now. It prints as a table.
    """
    return store.counts.report(is_installed(), len(store))


def _ops_by_name() -> Iterator[PureOp]:
    """Yield the ops that modules have as their attributes, in the order they were imported."""
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            if isinstance(value, PureOp):
                yield value
