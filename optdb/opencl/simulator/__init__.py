"""SimulatorOCL: a compiled ``theano.function`` is taken as it is, and run on an OpenCL device.

- ``execution``: the function's optimized graph is copied with plain ops
  (``optdb.host.theano.functions.optimized``), its shared variables and inputs are put on the device, and the copy is
  lifted, fused, made to work in place (``graph``) and linked (``linking``). An ``executable`` computes it, for both a
  simulator and the linker ``opencl``; ``state`` has the shared variables, each once for all functions that use it. A
  simulator has their values on the device, a function of the linker on the host (``opencl_linker``).
- ``diagnostics``: a call's nodes are computed one by one (``stepping``), each is compared with the host's
  (``checking``), each is timed (``profiling``); ``memory`` tells what a call takes.
- ``packing`` lays shared variables next to each other, so that one transfer moves all of them.
- A ``device_function`` is called as the original is; a ``simulator`` is what users have.
"""

from optdb.host.theano.functions.compiled import optimize
from optdb.opencl.simulator.execution.state import SimulatorClosed
from optdb.opencl.simulator.simulator import SimulatorOCL, fixed_size_opencl_backend, opencl_backend

__all__ = ["SimulatorClosed", "SimulatorOCL", "fixed_size_opencl_backend", "opencl_backend", "optimize"]
