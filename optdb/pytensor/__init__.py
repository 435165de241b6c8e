"""PyTensor's functions on OpenCL devices: importing this registers the modes 'OPENCL' and 'OPENCL_AUTO'.

::

    import optdb.pytensor
    f = pytensor.function([x], y, mode="OPENCL")

A function is described to ``optdb.device.functions``, which fuses it into few kernels and launches them in each call.
For this mode, PyMC samples in fresh processes instead of forked ones, because OpenCL does not work in a forked process
(`processes`).

Shared variables that a function updates stay on the device between calls. `call_n_times` calls a function many times;
`run_async` returns without waiting for it.

In mode 'OPENCL_AUTO', a function uses PyTensor's default linker if that is faster for the shapes of the inputs.

`enable` lets optdb's engine rewrite the graphs of all modes (`switch`, `rewriting`).

`dispatch` maps ops to their descriptions; each family of ops has a module. Ops without a description run on the host.
"""

from optdb.pytensor import versions

versions.check()  # before anything else imports PyTensor

from optdb.pytensor.batching import evaluate_many
from optdb.pytensor.call_warnings import HostNodesWarning, TooSmallWarning
from optdb.pytensor.choosing import DifferingValuesWarning
from optdb.pytensor.compiled import explain
from optdb.pytensor.exporting import export
from optdb.pytensor.linker import OpenCLLinker
from optdb.pytensor.modes import OPENCL, IgnoredModeWarning, opencl_mode
from optdb.pytensor.nutpie_models import compile_nutpie
from optdb.pytensor.repeated_calls import call_n_times, run_async
from optdb.pytensor.switch import disable, enable, enable_as_told, is_enabled

__all__ = [
    "OPENCL",
    "DifferingValuesWarning",
    "HostNodesWarning",
    "IgnoredModeWarning",
    "OpenCLLinker",
    "TooSmallWarning",
    "call_n_times",
    "compile_nutpie",
    "disable",
    "enable",
    "evaluate_many",
    "explain",
    "export",
    "is_enabled",
    "opencl_mode",
    "run_async",
]

enable_as_told()
