"""The writer of exported files, for any host: files hold functions and shared values, and run without the host.

A front end describes each function by an `Exportable`; ``optdb.runtime.exported`` reads and writes the file.
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
