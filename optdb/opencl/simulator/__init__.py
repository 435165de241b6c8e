"""SimulatorOCL: runs an existing compiled ``theano.function`` on an OpenCL device.

- ``execution``: the function's optimized graph is copied with plain ops (``optdb.host.theano.functions.optimized``),
  its shared variables and inputs are placed on the device, and the copy is lifted, fused and converted to in-place ops
  (``graph``). An ``executable`` links and runs the graph, for both a simulator and the linker ``opencl``. ``state``
  contains the shared variables, one copy for all functions. A simulator keeps their values on the device, and a
  function of the linker keeps them on the host (``opencl_linker``).
- ``diagnostics``: a call's nodes are computed one by one (``stepping``), and either compared with the host's results
  (``checking``) or timed (``profiling``); ``memory`` predicts the memory that a call needs.
- ``packing`` packs shared variables, so that one transfer copies all variables of a dtype.
- A ``device_function`` is called like the original function; ``simulator`` contains the public class.
"""

from optdb.host.theano.functions.compiled import optimize
from optdb.opencl.simulator.execution.state import SimulatorClosed
from optdb.opencl.simulator.simulator import SimulatorOCL, fixed_size_opencl_backend, opencl_backend

__all__ = ["SimulatorClosed", "SimulatorOCL", "fixed_size_opencl_backend", "opencl_backend", "optimize"]
