"""Installs and removes optdb's C linker in Theano."""

from __future__ import annotations

import threading

from optdb.host.api.patching import PatchGroup

_lock = threading.RLock()
_patches = PatchGroup("C code in batches", "from optdb.enable() on, or by the flag optdb.clinker", "optdb.disable()")


def is_wanted() -> bool:
    """Return whether the flag ``optdb.clinker`` allows optdb to compile C code."""
    from theano.configparser import config

    return config.optdb.clinker is not False


def is_installed() -> bool:
    """Return whether optdb builds the C code."""
    return _patches.installed


def install() -> None:
    """Make optdb link all later functions, and build their C code if there is a compiler."""
    if not is_wanted():
        return
    with _lock:
        if not _patches.patches:
            from optdb.host.theano.clinker.wrappers import wrappers

            _patches.patches.extend(wrappers())
        _patches.install()


def uninstall() -> None:
    """Restore Theano's own linker. Theano still finds the modules that optdb has built."""
    with _lock:
        _patches.uninstall()
