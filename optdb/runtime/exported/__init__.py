"""Exported functions: files that contain only data and need only NumPy and PyOpenCL to run.

Records define the format and check each field. `writing` writes traces to a file, `archive` opens a file, `binding`
checks the file's numbers, and `model` defines the functions that the user calls.
"""

from optdb.runtime.errors import FileError, LimitError, ShapeError
from optdb.runtime.exported.model import Exported, LoadedMethod, load

__all__ = ["Exported", "FileError", "LimitError", "LoadedMethod", "ShapeError", "load"]
