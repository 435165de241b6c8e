"""The parts of ``numpy.distutils`` and its submodules that Theano uses; Python 3.12 and later lack the package.

The functions that report installed libraries and the BLAS of NumPy report none, because optdb searches for a BLAS
itself.
"""

import sys

import numpy

__config__ = misc_util = system_info = sys.modules[__name__]

#: A setting that Theano assigns.
verbosity = 0
blas_opt_info: dict[str, object] = {}
default_lib_dirs: list[str] = []


def get_info(name: str, notfound_action: int = 0) -> dict[str, object]:
    """Return the information about a library: none."""
    return {}


def get_numpy_include_dirs() -> list[str]:
    """Return the folders of NumPy's headers."""
    return [numpy.get_include()]
