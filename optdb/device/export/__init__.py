"""Writes functions and shared values to files; the functions in a file run without the host.

A front end passes each function as an `Exportable`; ``optdb.runtime.exported`` defines the file format.
"""

from optdb.device.export.walking import Held, InputSpec, Traceable, trace
from optdb.device.export.writing import Call, Examples, Exportable, Report, write
from optdb.runtime.recording import Untraceable

__all__ = [
    "Call",
    "Examples",
    "Exportable",
    "Held",
    "InputSpec",
    "Report",
    "Traceable",
    "Untraceable",
    "trace",
    "write",
]
