"""How ops of the host become ops of the OpenCL device, one module for each family.

Importing this package fills ``optdb.opencl.lifters_db``.
"""

from optdb.opencl.lifters import (
    composed,
    convolutions,
    elemwise,
    fourier,
    linalg,
    memory,
    normalization,
    parts,
    pooling,
    products,
    random,
    sorting,
    views,
)

__all__ = [
    "composed",
    "convolutions",
    "elemwise",
    "fourier",
    "linalg",
    "memory",
    "normalization",
    "parts",
    "pooling",
    "products",
    "random",
    "sorting",
    "views",
]
