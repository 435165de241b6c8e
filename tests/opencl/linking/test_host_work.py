"""In functions on a device, the host computes nothing twice, and loses no number that an op overwrites."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano import scalar
from theano.scalar import Composite, UnaryScalarOp

import optdb  # noqa: F401  comes before theano
from optdb.opencl import as_opencl_variable

pytestmark = pytest.mark.usefixtures("default")


class CountedIncrement(UnaryScalarOp):
    """A scalar op that increments a number, and counts its calls."""

    calls = 0

    def impl(self, x):
        CountedIncrement.calls += 1
        return x + 1


def test_no_part_of_a_composite_is_computed_twice():
    counted = CountedIncrement(scalar.same_out, name="counted")
    x, y = scalar.int64(), scalar.int64()
    result = x
    for _ in range(8):
        result = counted(result)
        result = result + result * y
    op = Composite([x, y], [result, scalar.as_scalar(3) + x, y + 2])
    op.init_py_impls()
    CountedIncrement.calls = 0
    value, three_more, two_more = op.impl(1, 0)
    assert (value, three_more, two_more) == (9, 4, 2)
    assert CountedIncrement.calls == 8


def test_the_inputs_and_numbers_of_a_composite_may_be_used_several_times():
    x, y = scalar.int64(), scalar.int64()
    op = Composite([x, y], [scalar.switch(scalar.lt(x, y), x * 7 - y * 7, (x - y) // scalar.as_scalar(7))])
    op.init_py_impls()
    assert [op.impl(*pair) for pair in ((1, 2), (16, 2), (2, 2))] == [-7, 2, 0]


@pytest.mark.slow
def test_sizes_that_may_be_overwritten_are_computed_once():
    x = tt.fmatrix()
    rows = x.shape[0] - 1
    squared = rows * rows  # the graph allows this op to overwrite the memory of `rows`
    mode = theano.compile.get_default_mode().including("opencl").excluding("fusion")
    f = theano.function([x], as_opencl_variable(tt.exp(x[: squared % 7]), "dev0"), mode=mode)
    nodes, branches = f.fn.nodes, f.fn.linked.branches
    assert any(getattr(node.op, "destroy_map", None) and not node.outputs[0].ndim for node in nodes)
    assert not f.fn.linked.roles(branches.path(branches.first(f.fn.linked.run))).always_recompute
    for n in (5, 5, 5, 4, 4, 4, 5):
        value = np.random.RandomState(n).standard_normal((n, 2)).astype("float32")
        expected = np.exp(value[: (n - 1) ** 2 % 7])
        np.testing.assert_allclose(np.asarray(f(value)), expected, rtol=1e-5)


@pytest.mark.slow
def test_numbers_that_change_are_not_lost_where_they_may_be_overwritten():
    x, i = tt.fvector(), tt.lscalar()
    doubled = i * 2
    mode = theano.compile.get_default_mode().including("opencl").excluding("fusion")
    f = theano.function([x, i], as_opencl_variable(tt.exp(x[doubled * doubled :]) + x[i], "dev0"), mode=mode)
    value = np.arange(40, dtype="float32") / 40
    for at in (1, 1, 1, 2, 3, 3, 1):
        np.testing.assert_allclose(np.asarray(f(value, at)), np.exp(value[4 * at * at :]) + value[at], rtol=1e-5)
