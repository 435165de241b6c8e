"""PyTensor's functions on OpenCL devices: mode 'OPENCL' and linker 'opencl', which the import registers.

::

    import optdb.pytensor
    f = pytensor.function([x], y, mode="OPENCL")

What a function computes is described to ``optdb.codegen.functions``, which fuses it into few kernels and replays them.
Processes that this one starts do not fork it from then on, unless `multiprocessing.set_start_method` was called before:
OpenCL does not survive a fork.

`dispatch` has how an op is described, in a module for each family of ops; ops that are not described run on the host.
"""

from optdb.pytensor.batching import evaluate_many
from optdb.pytensor.exporting import export
from optdb.pytensor.linker import OPENCL, OpenCLLinker, opencl_mode
from optdb.pytensor.reports import explain
from optdb.pytensor.size_notes import TooSmallWarning

__all__ = ["OPENCL", "OpenCLLinker", "TooSmallWarning", "evaluate_many", "explain", "export", "opencl_mode"]
