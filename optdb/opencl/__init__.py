"""The compile-time part of the OpenCL device: types, variables, transfers, ops and their lifters.

Importing this package registers the device with Theano, so that ``theano.shared(value, target='dev0')`` works. Devices
are enumerated only when one is needed.
"""

from optdb.host import import_host

import_host()

from optdb.codegen.kernels.programs import one_program
from optdb.host.api.config import config
from optdb.host.theano.functions.compiled import wrap_compilation
from optdb.opencl import blas, linking, rewriters, transfers, variables
from optdb.opencl import lifters as _lifters  # noqa: F401  fills lifters_db
from optdb.opencl import pickling as _pickling  # noqa: F401  registers itself with copyreg
from optdb.opencl.creation import empty, zeros
from optdb.opencl.device import OPENCL, follow_flag, lifters_db
from optdb.opencl.fusing import rewriters as _fusion  # noqa: F401  registers itself
from optdb.opencl.registry import contexts, get_context
from optdb.opencl.transfers import (
    HostFromOpenCL,
    OpenCLFromHost,
    OpenCLToOpenCL,
    as_opencl_variable,
    infer_context_name,
)
from optdb.opencl.type import OpenCLArrayType
from optdb.opencl.variables import OpenCLConstant, OpenCLSharedVariable, OpenCLVariable
from optdb.runtime import binaries

follow_flag()
linking.install()
wrap_compilation(one_program)
binaries.configure(config.optdb.kernel_cache_dir, config.optdb.kernel_cache_size)

__all__ = [
    "OPENCL",
    "HostFromOpenCL",
    "OpenCLArrayType",
    "OpenCLConstant",
    "OpenCLFromHost",
    "OpenCLSharedVariable",
    "OpenCLToOpenCL",
    "OpenCLVariable",
    "as_opencl_variable",
    "blas",
    "contexts",
    "empty",
    "get_context",
    "infer_context_name",
    "lifters_db",
    "rewriters",
    "transfers",
    "variables",
    "zeros",
]
