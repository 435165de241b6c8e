"""PyTensor's functions on OpenCL devices: importing this package registers the modes 'OPENCL' and 'OPENCL_AUTO'.

::

    import optdb.pytensor
    f = pytensor.function([x], y, mode="OPENCL")

The first call for given input shapes traces a function (``optdb.device.functions``) and fuses it into a few kernels;
later calls launch these kernels. `dispatch` maps ops to the functions that trace them; each family of ops has its own
module. Other ops run on the host. In mode 'OPENCL_AUTO', a function uses PyTensor's default linker if that is faster
for the shapes of the inputs.
"""

from optdb.pytensor import versions

versions.check()  # before anything else imports PyTensor

from optdb.pytensor.call_warnings import HostNodesWarning, TooSmallWarning
from optdb.pytensor.choosing import DifferingValuesWarning
from optdb.pytensor.compiled import call_n_times, evaluate_many, explain, run_async
from optdb.pytensor.exporting import export
from optdb.pytensor.linker import OpenCLLinker
from optdb.pytensor.modes import OPENCL, IgnoredModeWarning, opencl_mode
from optdb.pytensor.nutpie_models import compile_nutpie
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
