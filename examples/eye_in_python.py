"""An op whose kernel is written in Python: ones on a diagonal.

    THEANO_FLAGS=optdb.device=opencl python examples/eye_in_python.py

examples/eye_from_file.py does the same with a kernel in a file.
"""

import numpy as np

import optdb  # noqa: F401  before Theano
import theano
import theano.tensor as tt
from optdb.opencl import OpenCLArrayType
from optdb.opencl.kernel_ops import Kernel, OpenCLKernelBase, ctype, output_zeros

CODE = """
KERNEL void eye(ARRAY {ctype} *a, ga_size first, ga_size step, ga_size count) {{
    ga_size i = GID_0 * LDIM_0 + LID_0;
    if (i < count)
        a[first + i * step] = 1;
}}
"""


class EyeInPython(OpenCLKernelBase):
    """``numpy.eye(n, m, k)`` on the device, for any dtype that is not complex and not float16."""

    __props__ = ("dtype", "context_name")

    def __init__(self, dtype=None, context_name=None):
        self.dtype = dtype or theano.config.floatX
        self.context_name = context_name

    def make_node(self, n, m, k=0):
        n, m, k = map(tt.as_tensor_variable, (n, m, k))
        assert n.ndim == m.ndim == k.ndim == 0
        return theano.Apply(self, [n, m, k], [OpenCLArrayType(self.dtype, (False, False), self.context_name)()])

    def infer_shape(self, node, in_shapes):
        return [node.inputs[:2]]

    def grad(self, inputs, output_grads):
        return [theano.gradient.grad_undefined(self, i, x) for i, x in enumerate(inputs)]

    def gpu_kernels(self, node, name):
        return [Kernel(CODE.format(ctype=ctype(self.dtype)))]

    def run(self, node, inputs, outputs, kernels, context):
        n, m, k = map(int, inputs)
        row, column = max(-k, 0), max(k, 0)
        z = output_zeros(outputs[0], context, (n, m), self.dtype)
        count = min(n - row, m - column)
        if count > 0:
            kernels["eye"].scall(count, z, row * m + column, m + 1, count)


if __name__ == "__main__":
    n, m, k = tt.lscalars("n", "m", "k")
    f = theano.function([n, m, k], EyeInPython()(n, m, k))
    for sizes in ((3, 3, 0), (3, 5, 1), (5, 3, -2), (0, 3, 0)):
        assert np.array_equal(f(*sizes), np.eye(*sizes))
        print(np.asarray(f(*sizes)))
