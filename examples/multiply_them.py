"""Multiply two arrays with a kernel, using PyOpenCL only, without Theano and without an op.

    python examples/multiply_them.py

The first function is the original example, which multiplies vectors. The second function solves the exercise of this
example: it multiplies matrices of shape (20, 10), with work items in two dimensions.
"""

import numpy as np
import pyopencl as cl

from optdb.runtime import devices

# Use any OpenCL device that works. Without optdb: cl.create_some_context()
context = cl.Context([devices.find("opencl")])
queue = cl.CommandQueue(context)

program = cl.Program(
    context,
    """
__kernel void multiply_them(__global float *dest, __global const float *a, __global const float *b)
{
    const int i = get_global_id(0);
    dest[i] = a[i] * b[i];
}

__kernel void multiply_matrices(__global float *dest, __global const float *a, __global const float *b)
{
    const int row = get_global_id(0), column = get_global_id(1), columns = get_global_size(1);
    const int i = row * columns + column;
    dest[i] = a[i] * b[i];
}
""",
).build()


def multiply_them(a, b):
    """Return a * b, for two vectors of float32."""
    return launch(program.multiply_them, a, b)


def multiply_matrices(a, b):
    """Return a * b, for two matrices of float32; a work item with a row and a column computes each element."""
    return launch(program.multiply_matrices, a, b)


def launch(kernel, a, b):
    """Copy the arrays to the device, launch a kernel with one work item for each element, and fetch the result."""
    read = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    a_there, b_there = (cl.Buffer(context, read, hostbuf=np.ascontiguousarray(x)) for x in (a, b))
    dest = np.zeros_like(a)
    dest_there = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, dest.nbytes)
    kernel(queue, a.shape, None, dest_there, a_there, b_there)
    cl.enqueue_copy(queue, dest, dest_there)
    return dest


if __name__ == "__main__":
    rng = np.random.default_rng(22)

    a, b = rng.normal(size=(2, 400)).astype(np.float32)
    dest = multiply_them(a, b)
    assert np.allclose(dest, a * b)
    print(dest)

    a, b = rng.normal(size=(2, 20, 10)).astype(np.float32)
    dest = multiply_matrices(a, b)
    assert np.allclose(dest, a * b)
    print(dest)
