"""The Theano-specific part of exporting to files (``optdb.device.export``).

`functions` converts compiled functions to exportable ones, and rejects functions that a file cannot store. `nodes`
copies the function's nodes for a trace. `host_steps` executes host nodes symbolically.
"""

from __future__ import annotations

from optdb.opencl.exporting.functions import export, of_function, of_method, traceable
from optdb.runtime.recording import Untraceable

__all__ = ["Untraceable", "export", "of_function", "of_method", "traceable"]
