"""Linking a function on a device requests no C code, and does not compute known values again."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof.op import Op

import optdb  # noqa: F401  comes before theano
from optdb.opencl import as_opencl_variable
from optdb.opencl.linking.nodes import on_device
from optdb.opencl.linking.patches import Outputs

pytestmark = pytest.mark.usefixtures("default")

MODE = theano.compile.get_default_mode()


def test_nothing_that_touches_the_device_is_asked_for_c_code(monkeypatch):
    asked = []
    make_c_thunk = Op.make_c_thunk

    def note(op, node, *args):
        asked.append(node)
        return make_c_thunk(op, node, *args)

    monkeypatch.setattr(Op, "make_c_thunk", note)
    x = tt.fmatrix()
    y = as_opencl_variable(x, "dev0")
    # Only the sum of x, which the host computes, uses C code.
    f = theano.function([x], [tt.exp(y), y.shape[0], x.sum(axis=0)], mode=MODE.including("opencl"))
    value = np.arange(6, dtype="float32").reshape(2, 3)
    exponents, rows, columns = f(value)
    np.testing.assert_allclose(np.asarray(exponents), np.exp(value), rtol=1e-6)
    assert rows == 2
    np.testing.assert_array_equal(np.asarray(columns), [3, 5, 7])
    assert not [node for node in asked if any(map(on_device, (*node.inputs, *node.outputs)))]


def test_outputs_know_what_is_among_them():
    x, y = tt.dscalars(2)
    outputs = Outputs([x, y, x])
    assert x in outputs
    assert tt.dscalar() not in outputs
    assert list(outputs) == [x, y, x]


@pytest.mark.parametrize("where", ["host", "device"])
def test_numbers_that_could_share_a_place(where):
    x, n = tt.fvector(), tt.lscalar()
    first = n * 2 + 1
    second = (first * first) % 7
    third = second + first
    out = tt.exp(x[:third]) + tt.cast(third, "float32")
    if where == "device":
        out = as_opencl_variable(out, "dev0")
    mode = MODE.including("opencl") if where == "device" else MODE
    f = theano.function([x, n], [out, second], mode=mode.excluding("fusion", "inplace"))
    assert type(f.maker.fgraph.outputs) is list
    value = np.linspace(0, 1, 20, dtype="float32")
    for n in (1, 2, 3, 1):
        got, middle = f(value, n)
        odd = 2 * n + 1
        assert middle == odd**2 % 7
        total = odd**2 % 7 + odd
        np.testing.assert_allclose(np.asarray(got), np.exp(value[:total]) + total, rtol=1e-6)
