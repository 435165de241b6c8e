"""SimulatorOCL: runs an existing compiled ``theano.function`` on an OpenCL device.

`simulator` defines the public class, and `device_function` its methods. `execution` lifts, links and runs a function's
graph; `diagnostics` checks, times and measures calls; `packing` packs shared variables for transfers.
"""

from optdb.host.theano.functions.compiled import optimize
from optdb.opencl.simulator.execution.state import SimulatorClosed
from optdb.opencl.simulator.simulator import SimulatorOCL, fixed_size_opencl_backend, opencl_backend

__all__ = ["SimulatorClosed", "SimulatorOCL", "fixed_size_opencl_backend", "opencl_backend", "optimize"]
