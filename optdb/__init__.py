"""optdb makes Theano compile fast.

The public names are defined in other modules, and are imported from there on first use:
``import optdb`` imports neither Theano nor NumPy. An import hook (see ``optdb.composition``) lets a later ``import
theano`` work.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from optdb import composition

if TYPE_CHECKING:
    from optdb import cache, distributed
    from optdb.host.api.c_code import tier, wait
    from optdb.lifters import GraphToGPU, op_lifter
    from optdb.lifters.explain import explain
    from optdb.opencl.exporting import export
    from optdb.opencl.simulator import SimulatorOCL, fixed_size_opencl_backend, opencl_backend, optimize
    from optdb.runtime.devices import list_devices as devices
    from optdb.runtime.exported import load
    from optdb.topo import TopoOptDB, disable, enable, mode, register_topo
    from optdb.unpickling import SimulatorNotRestored

__version__ = "0.1.0"

#: Maps each public name to ``module``, or to ``module:name`` if the object has a different name in the module.
_LAZY_ATTRS = {
    "GraphToGPU": "optdb.lifters",
    "SimulatorNotRestored": "optdb.unpickling",
    "SimulatorOCL": "optdb.opencl.simulator",
    "TopoOptDB": "optdb.topo",
    "devices": "optdb.runtime.devices:list_devices",
    "disable": "optdb.topo",
    "enable": "optdb.topo",
    "explain": "optdb.lifters",
    "export": "optdb.opencl.exporting",
    "fixed_size_opencl_backend": "optdb.opencl.simulator",
    "load": "optdb.runtime.exported",
    "mode": "optdb.topo",
    "op_lifter": "optdb.lifters",
    "opencl_backend": "optdb.opencl.simulator",
    "optimize": "optdb.opencl.simulator",
    "register_topo": "optdb.topo",
    "tier": "optdb.host.api.c_code",
    "wait": "optdb.host.api.c_code",
}

__all__ = [
    "GraphToGPU",
    "SimulatorNotRestored",
    "SimulatorOCL",
    "TopoOptDB",
    "__version__",
    "cache",
    "devices",
    "disable",
    "distributed",
    "enable",
    "explain",
    "export",
    "fixed_size_opencl_backend",
    "load",
    "mode",
    "op_lifter",
    "opencl_backend",
    "optimize",
    "register_topo",
    "tier",
    "wait",
]


#: Submodules that users access as attributes, as in ``optdb.cache.install()``.
_LAZY_SUBMODULES = ("cache", "distributed")


#: Maps each name that was proposed for Theano to the code to write instead.
_WRITE_INSTEAD = {
    "Simulator": "optdb.SimulatorOCL",
    "cuda_backend": "optdb.opencl_backend('nvidia')",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY_SUBMODULES:
        return importlib.import_module(f"optdb.{name}")
    if name not in _LAZY_ATTRS:
        hint = f"; write {_WRITE_INSTEAD[name]}" if name in _WRITE_INSTEAD else ""
        raise AttributeError(f"module 'optdb' has no attribute {name!r}{hint}")
    module, _, there = _LAZY_ATTRS[name].partition(":")
    value = _import(name, module, there or name)
    globals()[name] = value  # later uses of the name do not call __getattr__
    return value


def _import(name: str, module: str, there: str) -> Any:
    """Import a public name from a module; if Theano is missing, the error names the alternative for PyTensor."""
    try:
        return getattr(importlib.import_module(module), there)
    except ImportError as error:
        if error.name != "theano":
            raise
        from optdb.host import missing_theano

        # Suppress the original error: Python would print it first, and its message names only the fix for Theano.
        raise type(error)(missing_theano(name, error), name=error.name) from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# This call comes last, because it may import optdb's modules.
composition.start()
