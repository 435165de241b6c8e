"""How ops of the host become ops of the OpenCL device.

Importing this package fills ``optdb.opencl.lifters_db``.
"""

from optdb.opencl.lifters import arrays, composed, counterparts, elemwise, linalg

__all__ = ["arrays", "composed", "counterparts", "elemwise", "linalg"]
