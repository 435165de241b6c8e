"""The session: settings and patches that are in force while the engine optimizes a graph.

A session pauses the cyclic collector, computes test values only where
``config.compute_test_value_opt`` asks for them, lets op equality be answered from
numbers, and puts the leaner bookkeeping in place of Theano's.  Sessions nest
and may run in several threads at once: the first one in sets things up, the
last one out puts them back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from optdb.collector import growing
from optdb.host.api import folding, fusion, identity
from optdb.host.api.patching import Patch, PatchGroup
from optdb.host.api.testvalues import optimizer_test_values
from optdb.host.theano.speedups import (
    algebra,
    bookkeeping,
    construction,
    fresh,
    greedy,
    scan_passes,
    searches,
    shapes,
    slices,
)

_lock = threading.Lock()
_modules = (bookkeeping, construction, fresh, algebra, shapes, folding, greedy, slices, scan_passes, searches)
_patches = PatchGroup(
    "Optimization by the engine",
    "while a graph is optimized by the engine",
    "the end of the optimization",
    [patch for module in _modules for patch in module.patches()],
)


def install_during_sessions(*patches: Patch) -> None:
    """Let `patches` be in force during each session from the next one on."""
    with _lock:
        _patches.patches.extend(patches)


def prepare() -> None:
    """Put the patches in place that stay between sessions, which the first session would do otherwise."""
    with _lock:
        identity.install("enabled")


@contextmanager
def optimizing() -> Iterator[None]:
    """Set up for an optimization, and clean up after the last one."""
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
    # This stays: it asks Theano's own methods while no session is on, and putting a
    # thousand methods back and forth would cost more than it saves.
    identity.install("engine")
    _patches.install()


def _clean_up() -> None:
    _patches.uninstall()
    identity.numbers.clear()
    bookkeeping.forget()
    construction.forget()
    algebra.forget()
    folding.forget()
    greedy.forget()
    fusion.forget()


def remove_all() -> None:
    """Remove also the patches that stay between sessions, unless a session is running."""
    with _lock:
        if not identity.numbers.users:
            identity.uninstall("enabled")
            identity.uninstall("engine")
