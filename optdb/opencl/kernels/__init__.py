"""The kit to add ops with kernels of their own.

An op describes its kernels as :class:`Kernel` objects, in Python (:class:`OpenCLKernelBase`) or in a file
(:class:`OpenCLKernelFileBase`). They are compiled when a function is, and launched from the op's ``run``.
"""

from optdb.codegen.kernels.kernel import Kernel, UnsupportedKernel
from optdb.codegen.kernels.launching import CompiledKernel
from optdb.codegen.kernels.params import ARRAY, BUFFER, LOCAL, SIZE, SSIZE, SSIZES, KernelArgumentError
from optdb.codegen.kernels.prelude import PRELUDE, ctype
from optdb.codegen.kernels.programs import compile_kernels, one_program
from optdb.opencl.kernels.base import Kernels, OpenCLKernelBase, Outputs, output_array, output_zeros
from optdb.opencl.kernels.files import KernelFileError, OpenCLKernelFileBase
from optdb.runtime.build import BuildError
from optdb.runtime.context import Context

__all__ = [
    "ARRAY",
    "BUFFER",
    "LOCAL",
    "PRELUDE",
    "SIZE",
    "SSIZE",
    "SSIZES",
    "BuildError",
    "CompiledKernel",
    "Context",
    "Kernel",
    "KernelArgumentError",
    "KernelFileError",
    "Kernels",
    "OpenCLKernelBase",
    "OpenCLKernelFileBase",
    "Outputs",
    "UnsupportedKernel",
    "compile_kernels",
    "ctype",
    "one_program",
    "output_array",
    "output_zeros",
]
