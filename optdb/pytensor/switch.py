"""Turns rewriting by optdb on and off. `enable` imports the engine, which works with one host per process."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optdb.host.api.patching import Switch

#: The environment variable that enables the engine when `optdb.pytensor` is imported.
TOPO_VARIABLE = "OPTDB_PYTENSOR_TOPO"


def enable() -> Switch:
    """Rewrite PyTensor's graphs with optdb in all modes, starting with the next compilation.

    Returns
    -------
    Switch
        A switch that can be used as a context manager to restore the previous state.

    Raises
    ------
    optdb.host.SecondHost
        If the engine works with Theano in this process.

    Examples
    --------
    >>> import optdb.pytensor
    >>> with optdb.pytensor.enable():                     # doctest: +SKIP
    ...     f = pytensor.function([x], y)
    """
    importlib.import_module("optdb.pytensor.rewriting")  # makes PyTensor the host, and declares the patches
    from optdb.host.api.patching import Switch
    from optdb.host.pytensor import patches

    was_enabled = is_enabled()
    patches.install()
    return Switch(disable, was_enabled)


def disable() -> None:
    """Restore PyTensor's own rewriting."""
    if is_enabled():
        sys.modules["optdb.host.pytensor"].patches.uninstall()


def is_enabled() -> bool:
    """Return whether optdb rewrites PyTensor's graphs."""
    host = sys.modules.get("optdb.host.pytensor")
    return host is not None and host.patches.installed


def enable_as_told() -> None:
    """Enable the engine if the environment variable asks for it."""
    if os.environ.get(TOPO_VARIABLE, "") not in ("", "0"):
        enable()
