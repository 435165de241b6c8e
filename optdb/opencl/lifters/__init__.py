"""Lifters, which replace host ops with device ops.

Importing this package fills ``optdb.opencl.lifters_db`` with the lifters in its modules and with the lifters that the
modules in ``optdb.opencl.ops`` register for their counterparts.
"""

from optdb.opencl.lifters import arrays
from optdb.opencl.ops import (  # noqa: F401  which register lifters
    advanced,
    axes,
    batch_norm,
    blas,
    conv,
    linalg,
    memory,
    parts,
    pool,
    random,
    softmax,
)

__all__ = ["arrays"]
