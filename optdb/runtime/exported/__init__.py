"""Functions in files, which run by NumPy and PyOpenCL alone.

A file is data: numbers, arrays, the sources of kernels, and lists of commands for a device's queue. `writing` makes
one of traces (``optdb.runtime.tracing``); `archive` opens one and verifies its integrity; `reading` checks each
field of its manifest; `rules` works out the sizes of a call; `binding` gives the commands their memory and kernels, and
checks every number that determines either; `model` holds the classes that the user calls.
"""

from optdb.deprecation import renamed_names
from optdb.runtime.exported.errors import FileError, LimitError, ShapeError
from optdb.runtime.exported.model import Exported, LoadedMethod, load

__all__ = ["Exported", "FileError", "LimitError", "LoadedMethod", "ShapeError", "load"]

__getattr__ = renamed_names(__name__, {"Method": "LoadedMethod"})
