"""Defines ops with planted faults, and cases for these ops. The memory checker has to find exactly these faults."""

from __future__ import annotations

import os
import signal

import theano

from memcheck.case import Case, array
from optdb.opencl import as_opencl_variable, infer_context_name
from optdb.opencl.kernel_ops import ARRAY, SIZE, Kernel, OpenCLKernelBase, output_array
from optdb.opencl.ops.contiguous import opencl_contiguous

GROUP = 4

_HEADER = """
KERNEL void {name}(GLOBAL_MEM float *x, ga_size x_off, GLOBAL_MEM float *z, ga_size z_off, ga_size n) {{
    x = (GLOBAL_MEM float *)((GLOBAL_MEM char *)x + x_off);
    z = (GLOBAL_MEM float *)((GLOBAL_MEM char *)z + z_off);
    const ga_size i = get_global_id(0);
    {body}
}}
"""


class _Planted(OpenCLKernelBase):
    """A base class of this module's ops, which have one input and one output, both float32 vectors."""

    __props__ = ()
    kernels = ("planted",)
    body: str

    def make_node(self, x):
        x = opencl_contiguous(as_opencl_variable(x, infer_context_name(x)))
        return theano.Apply(self, [x], [x.type()])

    def gpu_kernels(self, node, name):
        return [
            Kernel(_HEADER.format(name=kernel, body=self.body), kernel, [ARRAY, ARRAY, SIZE]) for kernel in self.kernels
        ]

    def run(self, node, inputs, outputs, kernels, context):
        (x,) = inputs
        z = output_array(outputs[0], context, x.shape, x.dtype)
        kernels["planted"].call(-(-x.size // GROUP) * GROUP, GROUP, x, z, x.size)


class Clean(_Planted):
    body = "if (i < n) z[i] = x[i];"


class ReadsTooFar(_Planted):
    body = "if (i < n) z[i] = x[i + 1];"


class WritesTooFar(_Planted):
    body = "z[i] = i < n ? x[i] : 0;"


class Races(_Planted):
    body = "if (i < n) z[0] = x[0] + i;"


class LacksABarrier(_Planted):
    body = """LOCAL_MEM float shared[64];
    shared[LID_0] = i;
    if (i < n) z[i] = shared[(LID_0 + 1) % LDIM_0];"""


class Diverges(_Planted):
    body = """LOCAL_MEM float shared[64];
    shared[LID_0] = i;
    if (i < n) local_barrier();
    if (i < n) z[i] = shared[LID_0];"""


class Fails(_Planted):
    body = ""

    def run(self, node, inputs, outputs, kernels, context):
        raise ArithmeticError("an op that fails")


class Dies(_Planted):
    body = ""

    def run(self, node, inputs, outputs, kernels, context):
        os.kill(os.getpid(), signal.SIGKILL)


class LaunchesOneOfTwo(_Planted):
    body = "if (i < n) z[i] = x[i];"
    kernels = ("planted", "forgotten")


class HasNoCase(_Planted):
    body = ""


_TESTED = (Clean, ReadsTooFar, WritesTooFar, Races, LacksABarrier, Diverges, Fails, Dies, LaunchesOneOfTwo)

CASES = [Case(op_class(), array("float32", 7)) for op_class in _TESTED]
