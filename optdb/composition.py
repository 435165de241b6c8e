"""Connects optdb's packages. Installs the import hook, and installs optdb's parts in Theano once Theano is imported.

This module is the only one that refers to all packages. None of these packages is imported before Theano is imported:
``import optdb.codegen`` imports no part of the host.
"""

from __future__ import annotations

import importlib
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from optdb.host.api.device_linker import DeviceLinker

__all__ = ["compose", "start"]


#: Theano, and the libraries built on Theano that optdb translates.
HOSTS = (
    *("theano", "lasagne", "keras", "keras_applications", "keras_preprocessing"),
    *("pymc3", "theanets", "downhill"),
)


class _HostFinder:
    """Waits for the first import of Theano or of a library built on Theano, and then prepares the host."""

    _lock = threading.Lock()
    #: Whether the host has been prepared.
    done = False

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Install the host's import finders, and return their result for the module.

        Return None for modules that are not in `HOSTS`.
        """
        if name not in HOSTS:
            return None
        with cls._lock:
            if cls in sys.meta_path:
                sys.meta_path.remove(cls)
            if not cls.done:
                _make_host_ready()
        # The host has inserted its finders at the front of the list. The import system has already passed the front of
        # the list, so call the finders here.
        specs = (finder.find_spec(name, path, target) for finder in tuple(sys.meta_path))
        return next((spec for spec in specs if spec is not None), None)


def start() -> None:
    """Install the import hook, which runs `compose` after Theano is imported; called by ``import optdb``.

    If Theano is already imported, prepare the host now.
    """
    if not _HostFinder.done and _HostFinder not in sys.meta_path:
        sys.meta_path.insert(0, _HostFinder)
    if "theano" in sys.modules:
        _make_host_ready()


def _make_host_ready() -> None:
    from optdb.host import bind

    bind("theano")
    from optdb.host.theano.importing import bootstrap

    bootstrap.start(compose)
    _HostFinder.done = True


def compose() -> None:
    """Install the engine, the op cache and the OpenCL device in Theano, and enable the parts that flags select.

    Modules are imported by their full names, because the package that contains them may not have finished importing.
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
        importlib.import_module("optdb.opencl")  # from here on, theano.shared and x.transfer accept the device


def _link_for_opencl(linker: DeviceLinker, *storage: Any) -> Any:
    """Link a function for an OpenCL device. The modules for linking are imported when the first function is linked."""
    from optdb.opencl.simulator.execution.opencl_linker import link_with_host_state

    return link_with_host_state(linker, *storage)
