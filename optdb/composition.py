"""Puts optdb's folders together: what is installed when optdb is imported, and when Theano is.

This is the one module that knows all of them. `optdb.host` makes Theano importable and knows nothing of the others;
`start` hands it what is to follow the import of Theano. Nothing is imported here before that.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from optdb.host import bootstrap

if TYPE_CHECKING:
    from optdb.host.device_linker import DeviceLinker

__all__ = ["compose", "start"]


def start() -> None:
    """Install the import hook, so that whoever imports Theano gets optdb with it; called by ``import optdb``."""
    bootstrap.start(compose)


def compose() -> None:
    """Install what the engine, the op cache and the OpenCL device have in Theano, and turn on what the flags say.

    Called after Theano's code has run. Modules are imported from their own names here: the package that one is in may
    have just begun to be imported.
    """
    from optdb.host import device_linker
    from optdb.host.config import config
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
    """Link a function for an OpenCL device; what that needs is imported when the first one is linked."""
    from optdb.opencl.simulator.opencl_linker import link_with_host_state

    return link_with_host_state(linker, *storage)
