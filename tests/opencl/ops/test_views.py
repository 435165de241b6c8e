"""Views of device arrays (axes, slices, shapes, broadcast patterns) equal NumPy's, and copy nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from optdb.codegen.views import full_shape, strides_for, subtensor
from optdb.opencl import contexts
from optdb.opencl.ops.views import OpenCLDimShuffle, OpenCLReshape, OpenCLSubtensor
from optdb.runtime.arrays import may_share_memory, to_host
from tests.effort import examples
from tests.opencl.layouts import device_array, laid_out, run, shapes, variable
from tests.opencl.lifted import both, lifted_function


@pytest.mark.slow
@given(st.data())
def test_parts_are_those_of_numpy(data):
    shape = data.draw(shapes(min_dims=1))
    value, array = data.draw(laid_out("int16", shape))
    index = data.draw(hnp.basic_indices(shape, allow_ellipsis=False, allow_newaxis=False))
    index = index if isinstance(index, tuple) else (index,)
    np.testing.assert_array_equal(to_host(subtensor(array, index)), value[index])


@pytest.mark.parametrize("place", [3, -4])
def test_an_index_out_of_the_array_is_refused(place):
    with pytest.raises(IndexError, match=f"index {place} is out of bounds for axis 0 with size 3"):
        subtensor(device_array(np.zeros(3)), [place])


def test_a_subtensor_is_a_view():
    x, i = tt.fmatrix(), tt.lscalar()
    a = np.arange(12, dtype="float32").reshape(3, 4)
    got, want, ops = both([x, i], [x[i, ::-2], x[1:][:, 3], x[::-1].T, x[5:]], [a, -1], at_home=[i])
    assert {OpenCLSubtensor, OpenCLDimShuffle} <= set(ops)
    assert not {tt.subtensor.Subtensor, tt.DimShuffle} & set(ops)
    for mine, theirs in zip(got, want):
        np.testing.assert_array_equal(mine, theirs)
    node = OpenCLSubtensor([slice(None, None, theano.scalar.int64)])(variable(a), np.int64(-1)).owner
    array, storage = device_array(a), [[None]]
    node.op.perform(node, [array, -1], storage)
    assert may_share_memory(array, storage[0][0])


def test_axes_are_shuffled_dropped_and_added():
    a = np.arange(6, dtype="float64").reshape(2, 1, 3)
    node = OpenCLDimShuffle((False, True, False), (2, "x", 0))(variable(a, (False, True, False))).owner
    np.testing.assert_array_equal(run(node, [device_array(a, [-1, 1, 2])])[0], a[:, 0].T[:, None])
    assert node.outputs[0].type.broadcastable == (False, True, False)


def test_an_axis_that_is_not_of_length_1_is_not_dropped():
    a = np.zeros((2, 3), "float32")
    node = OpenCLDimShuffle((True, False), (1,))(variable(a, (True, False))).owner
    with pytest.raises(ValueError, match="declares length 1, but the array has length 2"):
        run(node, [device_array(a)])


@st.composite
def reshaped(draw):
    """Return an array's shape, and another shape for the same elements."""
    factors = draw(st.lists(st.integers(1, 3), max_size=4))

    def grouped():
        cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=3)))
        ends = [0, *cuts, len(factors)]
        return tuple(int(np.prod(factors[a:b])) for a, b in itertools.pairwise(ends))

    return grouped(), grouped()


@given(reshaped(), st.data())
@settings(max_examples=examples(40))
def test_reshapes_are_those_of_numpy(pair, data):
    old, new = pair
    value, array = data.draw(laid_out("float32", old))
    wanted = list(new)
    if wanted and data.draw(st.booleans()):
        wanted[data.draw(st.integers(0, len(wanted) - 1))] = -1
    node = OpenCLReshape(len(new))(variable(value), tt.lvector()).owner
    np.testing.assert_array_equal(run(node, [array, np.array(wanted, int)])[0], value.reshape(new))


@pytest.mark.slow
@given(reshaped(), st.data())
def test_strides_are_found_where_numpy_finds_them(pair, data):
    old, new = pair
    value, array = data.draw(laid_out("int8", old))
    base = value[...]
    try:
        same = np.lib.stride_tricks.as_strided(base, old, array.strides)
        same.shape = new
        possible = True
    except AttributeError:
        possible = False
    assert (strides_for(array, new) is not None) == possible


def test_a_contiguous_array_is_reshaped_without_a_copy():
    a = np.arange(12, dtype="float32")
    array, storage = device_array(a), [[None]]
    node = OpenCLReshape(2)(variable(a), [3, -1]).owner
    node.op.perform(node, [array, np.array([3, -1])], storage)
    assert may_share_memory(array, storage[0][0])


@pytest.mark.parametrize("wanted", [(5,), (-1, 4), (-1, -1), (-2, 3), (0, -1)])
def test_shapes_that_do_not_fit_are_refused(wanted):
    with pytest.raises(ValueError, match=r"Cannot reshape input of shape \(6,\)"):
        full_shape((6,), wanted, len(wanted))


def test_empty_arrays_are_reshaped():
    assert full_shape((0, 3), (3, -1), 2) == (3, 0)
    a = np.zeros((0, 3), "float32")
    node = OpenCLReshape(1)(variable(a), [-1]).owner
    assert run(node, [device_array(a), np.array([-1])])[0].shape == (0,)


def test_patterns_and_specified_shapes():
    x = tt.fmatrix()
    a = np.ones((1, 3), "float32")
    outputs = [tt.addbroadcast(x, 0), tt.specify_shape(x, (1, 3))]
    got, _, _ = both([x], outputs, [a])
    for mine in got:
        np.testing.assert_array_equal(mine, a)
    wrong = lifted_function([x], [tt.addbroadcast(x, 0)])
    with pytest.raises(ValueError, match="supposed to be 1"):
        wrong(np.ones((2, 3), "float32"))


def test_shapes_are_asked_for_without_a_transfer(default):
    x = tt.fmatrix()
    there = x.transfer("dev0")
    f = theano.function([x], [there.shape, there.shape[1]], mode="FAST_RUN")
    assert contexts.default == "dev0"
    shape, length = f(np.ones((2, 5), "float32"))
    assert (shape.tolist(), int(length)) == ([2, 5], 5)
    assert not any("HostFromOpenCL" in type(node.op).__name__ for node in f.maker.fgraph.toposort())
