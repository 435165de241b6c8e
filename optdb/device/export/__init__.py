"""The writer of exported files, for any host: functions with their shared values, to be run without the host.

A front end hands over each function as an `Exportable`. `walking` traces it, for each example and each kind of device;
`writing` collects the traces, and `optdb.runtime.exported` puts them into a file, and reads it.
"""

from optdb.device.export.functions import Exportable, Held, InputSpec, Traceable
from optdb.device.export.walking import trace
from optdb.device.export.writing import Call, Examples, Report, write
from optdb.runtime.tracing import Untraceable

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
