"""What is Theano's own of exported files (``optdb.device.export``).

`functions` says how a compiled function is called, and refuses what a file cannot do; `nodes` has copies of its nodes
that a trace computes, and `host_steps` what it does where a node computes on the host.
"""

from __future__ import annotations

from optdb.opencl.exporting.functions import export, of_function, of_method, traceable
from optdb.runtime.tracing import Untraceable

__all__ = ["Untraceable", "export", "of_function", "of_method", "traceable"]
