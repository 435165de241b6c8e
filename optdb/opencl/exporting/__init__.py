"""Writes functions on a device into a file that runs without Theano.

`functions` selects the parts of a compiled function that the file holds; `walking` traces it, for each example and each
kind of device, and `host_steps` follows the host's nodes; `optdb.runtime.exported` writes the file, and reads it.
"""

from __future__ import annotations

from optdb.opencl.exporting.functions import Exportable, Held, of_function, of_method
from optdb.opencl.exporting.writing import Report, write
from optdb.runtime.tracing import Untraceable

__all__ = ["Exportable", "Held", "Report", "Untraceable", "of_function", "of_method", "write"]
