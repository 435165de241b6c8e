"""Chains of increments of zeros (gradients of slices) become one array of parts, if the result stays the same."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.ifelse import ifelse

from optdb.opencl.ops.elemwise import OpenCLElemwise, OpenCLPlacedElemwise
from optdb.opencl.ops.parts import OpenCLIncSubtensor, OpenCLPad

HOST = theano.Mode("py", "fast_compile")
LIFTED = theano.Mode("py", "fast_run").including("opencl")
RNG = np.random.RandomState(3)

pytestmark = pytest.mark.usefixtures("default")

x, y = tt.dmatrix("x"), tt.dmatrix("y")


def count(outputs, *kinds, shape=(5, 12)):
    """Compare the device with the host in several calls; return the number of nodes of each class in `kinds`."""
    values = [RNG.uniform(-1, 1, shape) for _ in range(2)]
    expected = theano.function([x, y], outputs, mode=HOST, on_unused_input="ignore")(*values)
    f = theano.function([x, y], outputs, mode=LIFTED, on_unused_input="ignore")
    for _ in range(3):
        for one, other in zip(f(*values), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
    nodes = [type(node.op) for node in f.maker.fgraph.toposort()]
    return [nodes.count(kind) for kind in kinds]


def changed(base, values, bounds, change=tt.inc_subtensor, axis=1):
    for value, (start, stop) in zip(values, bounds, strict=True):
        base = change(base[:, start:stop] if axis == 1 else base[start:stop], value)
    return base


FOURTHS = [(0, 3), (3, 6), (6, 9), (9, 12)]


def test_the_gradient_of_gates_is_one_op():
    enter, forget, leave, new = (x[:, start:stop] for start, stop in FOURTHS)
    out = tt.nnet.sigmoid(leave) * tt.tanh(tt.nnet.sigmoid(forget) * y[:, :3] + tt.nnet.sigmoid(enter) * tt.tanh(new))
    gradient = tt.grad(out.sum(), x)
    assert count([gradient], OpenCLPlacedElemwise, OpenCLIncSubtensor, OpenCLElemwise) == [1, 0, 0]


@pytest.mark.parametrize("change", [tt.inc_subtensor, tt.set_subtensor])
@pytest.mark.parametrize("bounds", [FOURTHS, [(6, 9), (0, 3)], [(1, 2), (3, 4), (2, 3)], [(None, 2), (10, 12)]])
def test_parts_may_leave_gaps(bounds, change):
    values = [tt.tanh(x[:, start:stop]) * number for number, (start, stop) in enumerate(bounds, 1)]
    out = changed(tt.zeros_like(y), values, bounds, change)
    assert count([out], OpenCLPlacedElemwise, OpenCLIncSubtensor) == [1, 0]


def test_results_that_others_want_are_stored_too():
    values = [tt.tanh(x[:, :6]), tt.exp(x[:, 6:])]
    out = changed(tt.zeros_like(x), values, [(0, 6), (6, 12)])
    assert count([out, values[1].dot(y[:, :6].T), out.sum()], OpenCLPlacedElemwise, OpenCLIncSubtensor) == [1, 0]


def test_arrays_are_copied_to_their_places():
    values = [x.dot(y.T)[:, :3], y.dot(x.T)[:, 1:4]]
    out = changed(tt.zeros_like(x), values, [(0, 3), (5, 8)])
    assert count([out], OpenCLPlacedElemwise, OpenCLIncSubtensor) == [1, 0]


def test_parts_along_the_first_axis():
    values = [tt.tanh(x[1:3]), tt.exp(x[3:5])]
    assert count([changed(tt.zeros_like(x), values, [(0, 2), (2, 4)], axis=0)], OpenCLPlacedElemwise) == [1]


@pytest.mark.parametrize(
    "out",
    [
        changed(tt.zeros_like(x), [x[:, :3], x[:, 3:6]], [(0, 3), (2, 5)]),  # overlap
        changed(tt.zeros_like(x), [tt.tanh(x[:, :3]), x[:, 3:5]], [(0, 3), (3, 5)]),  # of different lengths
        changed(tt.ones_like(x), [x[:, :3], x[:, 3:6]], [(0, 3), (3, 6)]),  # no zeros
        changed(x, [y[:, :3], y[:, 3:6]], [(0, 3), (3, 6)]),
        changed(tt.zeros_like(x), [x[:, :2], x[:, 3:5]], [(0, 2), (-2, None)]),
        tt.inc_subtensor(tt.inc_subtensor(tt.zeros_like(x)[:, :3], y[:, :3])[::2, 3:6], x[::2, :3]),
        tt.inc_subtensor(tt.inc_subtensor(tt.zeros_like(x)[:, :3], y[:, :1])[:, 3:6], y[:, :1]),
    ],
)
def test_other_chains_compute_the_same(out):
    count([out])


def test_a_part_that_others_read_in_between_stays():
    first = tt.inc_subtensor(tt.zeros_like(x)[:, :6], x[:, 6:])
    out = tt.inc_subtensor(first[:, 6:], first[:, :6] * 2)
    assert count([out], OpenCLPlacedElemwise) == [0]


def test_lengths_of_the_results_themselves():
    value = tt.exp(x[:, :6])
    out = changed(tt.zeros((value.shape[0], value.shape[1] * 2)), [value, value * 2], [(0, 6), (6, 12)])
    assert count([out], OpenCLIncSubtensor) == [0]


def test_a_branch_that_is_not_taken_places_nothing():
    parts, takes_first = [tt.tanh(x) * number for number in (1, 2)], tt.iscalar("takes_first")
    placed = changed(tt.zeros_like(y), parts, [(0, 3), (3, 6)])
    lazy = theano.Mode("vm", "fast_run").including("opencl")
    outputs = [parts[0], parts[1], ifelse(tt.gt(takes_first, 0), y, placed)]
    f = theano.function([x, y, takes_first], outputs, mode=lazy)
    value, fits = RNG.uniform(-1, 1, (5, 3)), np.ones((5, 6))
    for other, takes in ((np.ones((4, 2)), 1), (fits, 1), (fits, 0)):
        got = f(value, other, takes)
        np.testing.assert_allclose(got[1], 2 * np.tanh(value))
        wanted = other if takes else np.concatenate([np.tanh(value), 2 * np.tanh(value)], axis=1)
        np.testing.assert_allclose(got[2], wanted)


@pytest.mark.parametrize("change", [tt.inc_subtensor, tt.set_subtensor])
@pytest.mark.parametrize("part", [np.s_[1:], np.s_[:3], np.s_[:, 2:9:3], np.s_[::-1], np.s_[:], np.s_[2:2]])
def test_one_part_of_zeros(part, change):
    zeros = tt.zeros_like(y)
    assert count([change(zeros[part], x[part])], OpenCLPad, OpenCLIncSubtensor) == [1, 0]


def test_a_part_that_is_the_whole_is_what_it_was():
    """If each part is the whole array, nothing is computed, but readers of the array must not overwrite arguments."""
    whole = tt.inc_subtensor(tt.zeros_like(y)[: x.shape[0]], x[::-1])
    whole = tt.inc_subtensor(tt.zeros_like(y)[x.shape[0] - x.shape[0] :], whole)
    outputs = [whole, tt.tanh(whole), whole + x, whole.dot(x.T)]
    assert count(outputs, OpenCLIncSubtensor) == [0]


def test_a_part_that_broadcasts_or_has_fewer_axes():
    zeros = tt.zeros_like(y)
    assert count([tt.inc_subtensor(zeros[1:3], x[:1] * 2)], OpenCLIncSubtensor, shape=(4, 6)) <= [1]
    assert count([tt.set_subtensor(zeros[2], x[0])], OpenCLPad, OpenCLIncSubtensor) == [0, 1]


def test_what_is_no_zeros_stays():
    for array in (tt.ones_like(y), tt.exp(y)):
        assert count([tt.tanh(tt.inc_subtensor(array[1:], x[1:]))], OpenCLPad, OpenCLIncSubtensor) == [0, 1]


def test_a_next_value_that_is_padded():
    """The gradient of reversed rows is a view with negative strides; the next value is computed in its memory."""
    w = theano.shared(np.arange(8.0).reshape(4, 2), "w")
    turned = tt.inc_subtensor(tt.zeros_like(w)[: w.shape[0]], tt.sqr(w)[::-1])
    f = theano.function([], turned.sum(), updates=[(w, turned * 0.5 + w)], mode=LIFTED)
    want = np.arange(8.0).reshape(4, 2)
    for _ in range(4):
        total = np.sum(want**2)
        np.testing.assert_allclose(f(), total)
        want = (want**2)[::-1] * 0.5 + want
        np.testing.assert_allclose(w.get_value(), want)
