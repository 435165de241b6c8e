"""SimulatorOCL: a compiled ``theano.function`` is taken as it is, and run on an OpenCL device.

Flow: the function's optimized graph is copied with plain ops (``optdb.host.functions.optimized``), its shared variables
and inputs are put on the device, and the copy is lifted, fused and made to work in place (``graph``), and linked
(``linking``). An ``executable`` computes it, for a simulator and for the linker ``opencl`` alike; ``state`` has the
shared variables, each once for all functions that use it. They differ in where these have their values: a simulator on
the device, a function of the linker on the host (``opencl_linker``). A ``device_function`` is called as the original
is; ``simulator`` is what users have.

To look inside, a call's nodes are computed one by one (``stepping``): ``checking`` has each compared with the host's,
``profiling`` has each timed.

``progress`` has the bar that long runs show.
"""

from optdb.host.functions.compiled import optimize
from optdb.opencl.simulator.simulator import SimulatorOCL, fixed_size_opencl_backend, opencl_backend
from optdb.opencl.simulator.state import SimulatorClosed

__all__ = ["SimulatorClosed", "SimulatorOCL", "fixed_size_opencl_backend", "opencl_backend", "optimize"]
