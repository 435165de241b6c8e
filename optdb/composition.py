"""Connects optdb's packages: installs the import hook, and the parts in Theano once Theano is imported.

Only this module knows all packages. `optdb.host` makes Theano importable and knows no other package; `start` passes it
the function to call after the import of Theano. This module imports the other packages only then.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from optdb.host.importing import bootstrap

if TYPE_CHECKING:
    from optdb.host.api.device_linker import DeviceLinker

__all__ = ["compose", "start"]


def start() -> None:
    """Install the import hook, which runs `compose` after Theano is imported; called by ``import optdb``."""
    bootstrap.start(compose)


def compose() -> None:
    """Install the parts of the engine, the op cache and the OpenCL device in Theano, and enable those that flags name.

    Called after Theano's code has run. Modules are imported by their full names: their package may be in the middle of
    its own import.
    """
    from optdb.host.api import device_linker
    from optdb.host.api.config import config
    from optdb.topo import plug as engine  # registers the modes TOPO and OPENCL

    device_linker.register_backend(_link_for_opencl)
    if config.optdb.topo:
        engine.enable()
    if config.optdb.op_cache:
        from optdb.cache import plug as op_cache

        op_cache.install()
    if config.optdb.device != "cpu" or config.optdb.contexts:
        importlib.import_module("optdb.opencl")  # theano.shared and x.transfer know the device from here on


def _link_for_opencl(linker: DeviceLinker, *storage: Any) -> Any:
    """Link a function for an OpenCL device. The modules for that are imported when the first function is linked."""
    from optdb.opencl.simulator.execution.opencl_linker import link_with_host_state

    return link_with_host_state(linker, *storage)
