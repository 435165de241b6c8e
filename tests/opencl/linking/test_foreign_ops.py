"""Some ops launch kernels that plans do not see and that ignore offsets of results; plans must still be correct."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest
import theano
import theano.tensor as tt
from theano import Apply, Op

import optdb
from optdb.opencl import as_opencl_variable
from optdb.opencl.ops.contiguous import opencl_contiguous
from optdb.runtime.arrays import empty
from optdb.runtime.recording import Untraceable
from tests.opencl.exported import export, floats, on_device, shared

pytestmark = pytest.mark.usefixtures("default")

SOURCE = """
__kernel void twice(__global const float *x, ulong x_offset, __global float *z)
{
    z[get_global_id(0)] = 2 * x[x_offset + get_global_id(0)];
}
"""


class Twice(Op):
    """An op that computes ``2 * x`` with PyOpenCL only."""

    __props__ = ()

    def make_node(self, x):
        x = opencl_contiguous(as_opencl_variable(x, "dev0"))
        return Apply(self, [x], [x.type()])

    def make_thunk(self, node, storage_map, compute_map, no_recycling, impl=None):
        context = node.inputs[0].type.context
        twice = cl.Program(context.cl_context, SOURCE).build().twice
        ((x_cell,), (z_cell,)) = ([storage_map[v] for v in variables] for variables in (node.inputs, node.outputs))

        def thunk():
            x, z = x_cell[0], z_cell[0]
            if z is None or z.shape != x.shape:
                z = z_cell[0] = empty(context, x.shape, x.dtype)
            twice(context.queue, (x.size,), None, x.base_data, np.uint64(x.offset // 4), z.base_data)
            compute_map[node.outputs[0]][0] = True

        return thunk


twice = Twice()


def same(function, wanted, values):
    """Compare several calls with different values."""
    for seed in range(5):
        given = values(seed)
        np.testing.assert_allclose(np.asarray(function(*given)), wanted(*given), rtol=1e-5)


def test_alone():
    x = tt.fmatrix("x")
    same(on_device([x], twice(x)), lambda x: 2 * x, lambda seed: [floats(4, 5, seed=seed)])


def test_between_others():
    x, y = tt.fmatrix("x"), tt.fmatrix("y")
    out = (twice(tt.tanh(x) + y)[1:] * tt.exp(y[1:])).sum(axis=0) + twice(y * 3).sum(axis=0)

    def wanted(x, y):
        return (2 * (np.tanh(x) + y)[1:] * np.exp(y[1:])).sum(axis=0) + 6 * y.sum(axis=0)

    same(on_device([x, y], out), wanted, lambda seed: [floats(4, 5, seed=seed), floats(4, 5, seed=seed + 9)])


def test_in_a_loop():
    x = tt.fmatrix("x")
    rows, _ = theano.scan(lambda row: twice(row) + 1, sequences=[x])
    same(on_device([x], rows), lambda x: 2 * x + 1, lambda seed: [floats(4, 5, seed=seed)])


def test_as_a_next_value():
    x, total = tt.fmatrix("x"), shared(np.zeros((4, 5)), "total")
    function = on_device([x], total * 1, updates=[(total, twice(total + x))])
    expected = np.zeros((4, 5), "float32")
    for seed in range(5):
        value = floats(4, 5, seed=seed)
        np.testing.assert_allclose(np.asarray(function(value)), expected, rtol=1e-5)
        expected = 2 * (expected + value)


def test_simulated():
    x = tt.fmatrix("x")
    function = theano.function([x], twice(x * 3) + x)
    sim = optdb.SimulatorOCL(function, device="opencl")
    same(sim, lambda x: 7 * x, lambda seed: [floats(4, 5, seed=seed)])


@pytest.mark.parametrize("within", ["the function", "a loop"])
def test_not_exported(tmp_path, within):
    x = tt.fmatrix("x")
    out = twice(x) if within == "the function" else theano.scan(lambda row: twice(row) + 1, sequences=[x])[0]
    function = on_device([x], out)
    with pytest.raises(Untraceable, match=r"Twice.*launches kernels itself"):
        export(tmp_path / "f.optdb", [[floats(4, 5)]], f=function)
