"""SimulatorOCL: a compiled ``theano.function`` is taken as it is, and run on an OpenCL device.

Flow: the function's optimized graph is copied with plain ops (``optdb.host.optimized``), its shared variables and
inputs are put on the device (``placing``), and the copy is lifted, fused and made to work in place (``graph``), and
linked (``linking``). ``state`` has the shared variables, each once for all functions that use it; a ``method`` is one
function on the device, called as the original is; ``simulator`` is what users have. ``rebuilding`` pickles it.

``coherent`` computes functions of the linker ``opencl`` from the same parts, with shared variables that stay Theano's.

To look inside, a call's nodes are computed one by one (``stepping``): ``checking`` has each compared with the host's,
by what ``origins`` has kept of where variables come from; ``profiling`` has each timed; ``reporting`` counts what is
moved.

``signature`` has what `inspect.signature` says of a simulator, and ``progress`` the bar that long runs show.
"""

from optdb.opencl.simulator.simulator import (
    SimulatorClosed,
    SimulatorOCL,
    fixed_size_opencl_backend,
    opencl_backend,
    optimize,
)

__all__ = ["SimulatorClosed", "SimulatorOCL", "fixed_size_opencl_backend", "opencl_backend", "optimize"]
