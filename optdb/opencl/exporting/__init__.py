"""The Theano-specific part of exporting to files (``optdb.device.export``).

`functions` describes how a compiled function is called, and refuses functions that a file cannot hold. `nodes` copies
the function's nodes for a trace. `host_steps` follows nodes that compute on the host.
"""

from __future__ import annotations

from optdb.opencl.exporting.functions import export, of_function, of_method, traceable
from optdb.runtime.tracing import Untraceable

__all__ = ["Untraceable", "export", "of_function", "of_method", "traceable"]
