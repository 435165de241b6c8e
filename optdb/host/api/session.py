"""Sessions, in which settings and patches are active while the engine optimizes a graph.

Sessions can be nested and can run in several threads. The first running session installs the patches, and the last
session to end removes them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from optdb.collector import growing
from optdb.host.api import bookkeeping, folding, fusion, identity
from optdb.host.api.patching import Patch, PatchGroup
from optdb.host.api.testvalues import optimizer_test_values
from optdb.host.theano.speedups import algebra, construction, fresh, passes, shapes, slices

_lock = threading.Lock()
_modules = (bookkeeping, construction, fresh, algebra, shapes, folding, slices, passes)
_lasting = PatchGroup(
    "Construction of ops and traces",
    "while the engine is enabled, and from the first graph that it optimizes on",
    "optdb.disable()",
    [*construction.LASTING, *fresh.LASTING],
)
_patches = PatchGroup(
    "Optimization by the engine",
    "while a graph is optimized by the engine",
    "the end of the optimization",
    [patch for module in _modules for patch in module.PATCHES],
)


def install_during_sessions(*patches: Patch) -> None:
    """Install `patches` during each later session."""
    with _lock:
        _patches.patches.extend(patches)


def prepare() -> None:
    """Install the patches that persist between sessions, without waiting for the first session."""
    with _lock:
        identity.install("enabled")
        _lasting.install()


@contextmanager
def optimizing() -> Iterator[None]:
    """Run a session in the block; the last session to end restores the settings."""
    with _lock:
        if identity.numbers.users == 0:
            _set_up()
        identity.numbers.users += 1
    try:
        with growing(), optimizer_test_values():
            yield
    finally:
        with _lock:
            identity.numbers.users -= 1
            if identity.numbers.users == 0:
                _clean_up()


def _set_up() -> None:
    # The methods that `identity` gives the op classes stay installed after a session, because installing a thousand
    # methods in each session takes too long. Between sessions, these methods call Theano's methods.
    identity.install("engine")
    _lasting.install()
    _patches.install()


def _clean_up() -> None:
    _patches.uninstall()
    identity.numbers.clear()
    bookkeeping.forget()
    construction.forget()
    algebra.forget()
    folding.forget()
    fusion.forget()


def remove_all() -> None:
    """Remove all patches, including those that persist between sessions, unless a session is running."""
    with _lock:
        if not identity.numbers.users:
            identity.uninstall("enabled")
            identity.uninstall("engine")
            _lasting.uninstall()
