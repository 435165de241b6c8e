"""How ops of the host become ops of the OpenCL device.

Importing this package fills ``optdb.opencl.lifters_db``.
"""

from optdb.opencl.lifters import arrays, counterparts, elemwise

__all__ = ["arrays", "counterparts", "elemwise"]
