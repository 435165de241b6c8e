"""Writes files with functions and shared values, which run without the host.

A front end passes each function as an `Exportable`; ``optdb.runtime.exported`` defines the file.
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
