"""Installs the op cache for the host's op classes, and removes it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

from optdb.cache import singleton
from optdb.cache.construct import store
from optdb.cache.guard import delete_attribute, set_attribute
from optdb.cache.op_copies import copy_patches
from optdb.cache.singleton import SingletonOp
from optdb.cache.stats import Stats
from optdb.host.api import identity, scans
from optdb.host.api.graph import PureOp
from optdb.host.api.patching import Patch, PatchGroup, Switch

_lock = threading.RLock()
_REASON = "changing a shared op would change all graphs that use it"
_guards = [
    Patch(PureOp, "__setattr__", set_attribute, _REASON),
    Patch(PureOp, "__delattr__", delete_attribute, _REASON),
]
_patches = PatchGroup(
    "Singleton ops",
    "from optdb.cache.install() on",
    "optdb.cache.uninstall()",
    [*copy_patches(), singleton.metaclass_patch(), *(_guards if __debug__ else [])],
)
_installed = threading.Event()


def install() -> Switch:
    """Make the constructors of all op classes return an equal op if one exists.

    Ops that are attributes of modules, like ``theano.tensor.add``, become the shared ops.

    Returns
    -------
    Switch
        A switch; if it is used as a context manager, it restores the previous state at exit.

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
    singleton.share_all_classes()
    scans.install(store.share)
    identity.install("cache")
    for op in _ops_by_name():
        store.share(op)


def uninstall() -> None:
    """Restore the original behaviour: each call to an op class creates a new op. Existing shared ops do not change."""
    with _lock:
        _installed.clear()
        _patches.uninstall()
        singleton.restore_all_classes()
        scans.uninstall()
        store.forget(keep=SingletonOp)
        identity.uninstall("cache")


def is_installed() -> bool:
    """Return whether sharing is enabled for the host's op classes.

    Returns
    -------
    bool
        Whether the cache is installed.
    """
    return _installed.is_set()


def stats() -> Stats:
    """Return counters: how many ops were shared, and how many were not shared, by reason.

    Returns
    -------
    Stats
        The current counters, which print as a table.
    """
    return store.counts.report(is_installed(), len(store))


def _ops_by_name() -> Iterator[PureOp]:
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            if isinstance(value, PureOp):
                yield value
