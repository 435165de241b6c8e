"""The writer of exported files, for any host: functions with their shared values, which run without the host.

A front end describes each function by an `Exportable`. `walking` traces it for each example and kind of device.
`writing` collects the traces, which `optdb.runtime.exported` puts into a file and reads.
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
