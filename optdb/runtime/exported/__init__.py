"""Exported functions: files that need only NumPy and PyOpenCL to run.

A file contains only data: numbers, arrays, kernel sources, and lists of commands for a device's queue. Records define
its format and check each field: `manifest` and `buffers` in this package; `commands`, `operands`, `expressions`,
`deferred` and `calling` in ``optdb.runtime``. `writing` writes traces (``optdb.runtime.tracing``) to a file; `archive`
opens a file and verifies its integrity; `rules` computes the sizes for a call; `binding` assigns memory and kernels to
the commands, and checks every number that determines them; `model` and `methods` contain the classes that the user
calls.
"""

from optdb.runtime.errors import FileError, LimitError, ShapeError
from optdb.runtime.exported.methods import LoadedMethod
from optdb.runtime.exported.model import Exported, load

__all__ = ["Exported", "FileError", "LimitError", "LoadedMethod", "ShapeError", "load"]
