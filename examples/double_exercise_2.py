"""Second exercise of double.py: two outputs, x + y and x - y.

    THEANO_FLAGS=optdb.device=opencl python examples/double_exercise_2.py

The node has two output variables, and `thunk` stores values in two cells. One kernel computes both outputs, so each
element is read once.
"""

import numpy as np
import pyopencl as cl

import optdb  # noqa: F401  before Theano
import theano
from optdb.opencl import as_opencl_variable, infer_context_name
from optdb.opencl.ops.contiguous import opencl_contiguous
from optdb.runtime.arrays import empty

SOURCE = """
__kernel void my_fct(__global const float *i0, ulong i0_offset, __global const float *i1, ulong i1_offset,
                     __global float *o0, __global float *o1, int size)
{
    i0 += i0_offset;
    i1 += i1_offset;
    int i = get_global_id(0);
    if (i < size) {
        o0[i] = i0[i] + i1[i];
        o1[i] = i0[i] - i1[i];
    }
}
"""


class PyOpenCLSumAndDifferenceOp(theano.Op):
    """``x + y`` and ``x - y``, for two device arrays of float32 of one shape."""

    __props__ = ()

    def make_node(self, x, y):
        name = infer_context_name(x, y)
        x, y = (opencl_contiguous(as_opencl_variable(v, name)) for v in (x, y))
        if x.dtype != "float32" or y.dtype != "float32" or x.ndim != y.ndim:
            raise TypeError(f"{self} takes two arrays of float32 with as many dimensions, not {x.type}, {y.type}")
        return theano.Apply(self, [x, y], [x.type(), x.type()])

    def make_thunk(self, node, storage_map, compute_map, no_recycling, impl=None):
        context = node.inputs[0].type.context
        my_fct = cl.Program(context.cl_context, SOURCE).build().my_fct
        inputs = [storage_map[v] for v in node.inputs]
        outputs = [storage_map[v] for v in node.outputs]

        def thunk():
            x, y = (storage[0] for storage in inputs)
            if x.shape != y.shape:
                raise ValueError(f"x and y have different shapes: {x.shape} and {y.shape}")
            for storage in outputs:
                if storage[0] is None or storage[0].shape != x.shape:
                    storage[0] = empty(context, x.shape, x.dtype)
            if x.size:
                places = [arg for v in (x, y) for arg in (v.base_data, np.uint64(v.offset // v.dtype.itemsize))]
                results = [storage[0].base_data for storage in outputs]
                items = -(-x.size // 64) * 64
                my_fct(context.queue, (items,), (64,), *places, *results, np.int32(x.size))
            for v in node.outputs:
                compute_map[v][0] = True

        return thunk


if __name__ == "__main__":
    x, y = theano.tensor.fmatrices("x", "y")
    f = theano.function([x, y], PyOpenCLSumAndDifferenceOp()(x, y))
    xv = np.arange(20, dtype="float32").reshape(4, 5)
    yv = np.full((4, 5), 3, dtype="float32")
    total, difference = f(xv, yv)
    assert np.allclose(total, xv + yv)
    assert np.allclose(difference, xv - yv)
    print(np.asarray(total), np.asarray(difference), sep="\n")
