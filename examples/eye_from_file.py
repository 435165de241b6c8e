"""An op whose kernel is in a separate file: ones on a diagonal.

    THEANO_FLAGS=optdb.device=opencl python examples/eye_from_file.py

The kernel is in eye.cl, beside this file. examples/eye_in_python.py does the same with a kernel in Python.
"""

import numpy as np

import optdb  # noqa: F401  before Theano
import theano
import theano.tensor as tt
from optdb.opencl import OpenCLArrayType
from optdb.opencl.kernel_ops import OpenCLKernelFileBase, output_zeros


class EyeFromFile(OpenCLKernelFileBase):
    """``numpy.eye(n, m, k)`` on the device."""

    __props__ = ("dtype", "context_name")

    def __init__(self, dtype=None, context_name=None):
        super().__init__("eye.cl")
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

    def run(self, node, inputs, outputs, kernels, context):
        n, m, k = map(int, inputs)
        z = output_zeros(outputs[0], context, (n, m), self.dtype)
        if -n < k < m:  # otherwise, all elements are 0
            # Launch one group of 256 work items; kernels["eye"].scall(items, ...) would choose the group size itself.
            kernels["eye"].call(256, 256, z, n, m, k)


if __name__ == "__main__":
    n, m, k = tt.lscalars("n", "m", "k")
    f = theano.function([n, m, k], EyeFromFile()(n, m, k))
    for sizes in ((3, 3, 0), (3, 5, 1), (5, 3, -2), (0, 3, 0)):
        assert np.array_equal(f(*sizes), np.eye(*sizes))
        print(np.asarray(f(*sizes)))
