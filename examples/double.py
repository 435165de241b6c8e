"""An op that doubles an array, written directly with PyOpenCL.

    THEANO_FLAGS=optdb.device=opencl python examples/double.py

Most ops are shorter with the kernel kit (examples/eye_from_file.py). An op that uses PyOpenCL directly controls
everything itself, and can call a library that works with PyOpenCL. `make_node` ensures that the input is on the device,
in C order. `make_thunk` builds the program once, and returns the function that runs at each call.
"""

import numpy as np
import pyopencl as cl

import optdb  # noqa: F401  before Theano
import theano
from optdb.opencl import as_opencl_variable, infer_context_name
from optdb.opencl.ops.contiguous import opencl_contiguous
from optdb.runtime.arrays import empty

SOURCE = """
__kernel void my_fct(__global const float *i0, ulong i0_offset, __global float *o0, int size)
{
    i0 += i0_offset;
    int i = get_global_id(0);
    if (i < size)
        o0[i] = i0[i] * 2;
}
"""


class PyOpenCLDoubleOp(theano.Op):
    """``2 * x``, for a device array of float32."""

    __props__ = ()

    def make_node(self, x):
        x = opencl_contiguous(as_opencl_variable(x, infer_context_name(x)))
        if x.dtype != "float32":
            raise TypeError(f"{self} doubles float32, not {x.dtype}: cast it first")
        return theano.Apply(self, [x], [x.type()])

    def make_thunk(self, node, storage_map, compute_map, no_recycling, impl=None):
        context = node.inputs[0].type.context
        program = cl.Program(context.cl_context, SOURCE).build()
        my_fct = program.my_fct
        (x_storage,) = [storage_map[v] for v in node.inputs]
        (z_storage,) = [storage_map[v] for v in node.outputs]

        def thunk():
            x, z = x_storage[0], z_storage[0]
            if z is None or z.shape != x.shape:
                z = z_storage[0] = empty(context, x.shape, x.dtype)
            if x.size:
                groups = -(-x.size // 64)
                first = np.uint64(x.offset // x.dtype.itemsize)
                my_fct(context.queue, (groups * 64,), (64,), x.base_data, first, z.base_data, np.int32(x.size))
            compute_map[node.outputs[0]][0] = True

        return thunk


if __name__ == "__main__":
    x = theano.tensor.fmatrix()
    f = theano.function([x], PyOpenCLDoubleOp()(x))
    xv = np.ones((4, 5), dtype="float32")
    assert np.allclose(f(xv), xv * 2)
    print(np.asarray(f(xv)))
