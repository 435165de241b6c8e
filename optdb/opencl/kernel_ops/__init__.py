"""The API for ops with their own kernels.

An op describes its kernels as :class:`Kernel` objects, in Python (:class:`OpenCLKernelBase`) or in a file
(:class:`OpenCLKernelFileBase`). The kernels are compiled when a function is compiled, and launched from the op's
``run``.
"""

from optdb.codegen import kernels as _device_kernels
from optdb.codegen.kernels import *  # noqa: F403
from optdb.codegen.operation import Kernels, Outputs, output_array, output_zeros
from optdb.opencl.kernel_ops.base import OpenCLKernelBase, check_lengths
from optdb.opencl.kernel_ops.files import KernelFileError, OpenCLKernelFileBase
from optdb.runtime.context import Context

__all__ = [
    *_device_kernels.__all__,
    "Context",
    "KernelFileError",
    "Kernels",
    "OpenCLKernelBase",
    "OpenCLKernelFileBase",
    "Outputs",
    "check_lengths",
    "output_array",
    "output_zeros",
]
