"""Third exercise of double.py: inputs of any strides, which need not be in C order.

    THEANO_FLAGS=optdb.device=opencl python examples/double_exercise_3.py

A transposed matrix, every other row of a matrix, and a matrix with its rows reversed are views: they use the same
memory with other strides, which may be negative. `make_node` no longer makes a copy in C order. Instead, the kernel
gets the position of the first element, and the distances to the next row and to the next column.
"""

import numpy as np
import pyopencl as cl

import optdb  # noqa: F401  before Theano
import theano
from optdb.opencl import as_opencl_variable, infer_context_name
from optdb.runtime.arrays import empty

SOURCE = """
__kernel void my_fct(__global const float *i0, ulong i0_offset, long i0_row, long i0_column,
                     __global float *o0, int rows, int columns)
{
    int row = get_global_id(0), column = get_global_id(1);
    if (row < rows && column < columns)
        o0[row * columns + column] = i0[i0_offset + row * i0_row + column * i0_column] * 2;
}
"""


class PyOpenCLStridedDoubleOp(theano.Op):
    """``2 * x``, for a matrix of float32 on the device that may be any view."""

    __props__ = ()

    def make_node(self, x):
        x = as_opencl_variable(x, infer_context_name(x))
        if x.dtype != "float32" or x.ndim != 2:
            raise TypeError(f"{self} doubles matrices of float32, not {x.type}")
        return theano.Apply(self, [x], [x.type()])

    def make_thunk(self, node, storage_map, compute_map, no_recycling, impl=None):
        context = node.inputs[0].type.context
        my_fct = cl.Program(context.cl_context, SOURCE).build().my_fct
        (x_storage,) = [storage_map[v] for v in node.inputs]
        (z_storage,) = [storage_map[v] for v in node.outputs]

        def thunk():
            x, z = x_storage[0], z_storage[0]
            if z is None or z.shape != x.shape:
                z = z_storage[0] = empty(context, x.shape, x.dtype)
            if x.size:
                # Strides and offsets are in bytes; the kernel counts in floats.
                first, row, column = (step // x.dtype.itemsize for step in (x.offset, *x.strides))
                items = [-(-n // 8) * 8 for n in x.shape]
                place = (x.base_data, np.uint64(first), np.int64(row), np.int64(column))
                my_fct(context.queue, items, (8, 8), *place, z.base_data, *map(np.int32, x.shape))
            compute_map[node.outputs[0]][0] = True

        return thunk


if __name__ == "__main__":
    x = as_opencl_variable(theano.tensor.fmatrix(), infer_context_name())
    on_device = x.type("x")
    f = theano.function([on_device], PyOpenCLStridedDoubleOp()(on_device))
    xv = np.arange(20, dtype="float32").reshape(4, 5)
    array = x.type.filter(xv)
    for view, expected in ((array, xv), (array.T, xv.T), (array[::2, 1:], xv[::2, 1:]), (array[::-1], xv[::-1])):
        assert np.allclose(f(view), expected * 2)
        print(np.asarray(f(view)))
