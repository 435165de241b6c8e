"""Functions in files, which run by NumPy and PyOpenCL alone.

A file is data: numbers, arrays, the sources of kernels, and lists of commands for a device's queue. Its format is that
of records, which check each field: `manifest` and `buffers` here; `commands`, `operands`, `expressions`, `deferred` and
`calling` in ``optdb.runtime``. `writing` makes a file of traces (``optdb.runtime.tracing``); `archive` opens one and
verifies its integrity; `rules` computes the sizes of a call; `binding` gives the commands their memory and kernels, and
checks every number that determines either; `model` and `methods` hold the classes that the user calls.
"""

from optdb.runtime.exported.errors import FileError, LimitError, ShapeError
from optdb.runtime.exported.methods import LoadedMethod
from optdb.runtime.exported.model import Exported, load

__all__ = ["Exported", "FileError", "LimitError", "LoadedMethod", "ShapeError", "load"]
