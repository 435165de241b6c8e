"""Exported functions: files that run with only NumPy and PyOpenCL.

A file is data: numbers, arrays, kernel sources, and lists of commands for a device's queue. Its format is defined by
records, which check each field: `manifest` and `buffers` here; `commands`, `operands`, `expressions`, `deferred` and
`calling` in ``optdb.runtime``. `writing` writes traces to a file (``optdb.runtime.tracing``); `archive` opens a file
and verifies its integrity; `rules` computes the sizes of a call; `binding` assigns memory and kernels to the commands,
and checks every number that determines them; `model` and `methods` hold the classes that the user calls.
"""

from optdb.runtime.errors import FileError, LimitError, ShapeError
from optdb.runtime.exported.methods import LoadedMethod
from optdb.runtime.exported.model import Exported, load

__all__ = ["Exported", "FileError", "LimitError", "LoadedMethod", "ShapeError", "load"]
