"""Kernels: their declarations, the programs that contain them, and their launches."""

from optdb.codegen.kernels.kernel import Kernel, UnsupportedKernel
from optdb.codegen.kernels.launching import CompiledKernel
from optdb.codegen.kernels.params import ARRAY, BUFFER, LOCAL, SIZE, SSIZE, SSIZES, KernelArgumentError, Packed
from optdb.codegen.kernels.prelude import PRELUDE, ctype
from optdb.codegen.kernels.programs import compile_kernels, one_program, try_compile
from optdb.runtime.build import BuildError

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
    "Kernel",
    "KernelArgumentError",
    "Packed",
    "UnsupportedKernel",
    "compile_kernels",
    "ctype",
    "one_program",
    "try_compile",
]
