"""An index that is out of bounds raises an error, whoever checks it and whatever other calls have done."""

from __future__ import annotations

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.compile.mode import Mode

HOST = Mode("py", None)


def trained(i, j, w, mode):
    """Return a function that returns elements of `w`, and adds their sum to all elements."""
    taken = w[i[:, None], j]
    return pytensor.function([i], taken, updates={w: w + taken.sum()}, mode=mode)


@given(st.data())
def test_calls_raise_errors_exactly_if_an_index_is_out_of_bounds(mode, data):
    i, shared = pt.ivector("i"), pytensor.shared(np.zeros(2, "int8"), "j")
    values = np.arange(12.0).reshape(3, 4)
    ours, hosts = pytensor.shared(values, "w"), pytensor.shared(values, "w")
    function, other = trained(i, shared, ours, mode), trained(i, shared, hosts, HOST)
    advance = pytensor.function([], updates={shared: shared + np.int8(1)}, mode=mode)
    for _ in range(data.draw(st.integers(1, 8), "calls")):
        index = np.array(data.draw(st.lists(st.integers(-4, 3), min_size=1, max_size=2), "i"), "int32")
        match data.draw(st.sampled_from(["keep", "set", "change", "advance"]), "shared index"):
            case "set":
                shared.set_value(np.array(data.draw(st.lists(st.integers(-5, 4), min_size=1, max_size=3)), "int8"))
            case "change":
                shared.get_value(borrow=True)[:1] = data.draw(st.integers(-5, 4))
            case "advance":
                advance()
        try:
            want = other(index)
        except IndexError:
            with pytest.raises(IndexError, match="out of bounds"):
                function(index)
        else:
            np.testing.assert_allclose(function(index), want)
        np.testing.assert_allclose(ours.get_value(), hosts.get_value())


def test_functions_whose_indices_the_host_checks_need_the_host_for_nothing_else(mode):
    x, i = pt.dmatrix("x"), pt.ivector("i")
    w = pytensor.shared(np.ones((4, 3)))
    loss = (x @ w.T)[pt.arange(i.shape[0]), i].sum()
    function = pytensor.function([x, i], loss, updates={w: w - pt.grad(loss, w)}, mode=mode)
    for _ in range(3):
        function(np.ones((5, 3)), np.array([0, 1, 2, 3, -1], "int32"))
    ((_, call),) = function.vm.jit_fn.function.traced_calls
    assert not call.needs_host
    # Next values are computed in the memory of the current values.
    assert not call.machine.plans[0].commit.commands()


@pytest.mark.parametrize("classes", [3, 40])
def test_gradients_of_one_element_per_row(mode, classes):
    x, i = pt.dmatrix("x"), pt.ivector("i")
    loss = (pt.log(pt.special.softmax(x, axis=1))[pt.arange(i.shape[0]), i] ** 2).sum()
    rng = np.random.default_rng(1)
    outputs = [loss, pt.grad(loss, x)]
    function, other = (pytensor.function([x, i], outputs, mode=each) for each in (mode, HOST))
    for rows in (5, 1, 5, 5):
        values, index = rng.normal(size=(rows, classes)), rng.integers(-classes, classes, rows).astype("int32")
        for got, want in zip(function(values, index), other(values, index)):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    with pytest.raises(IndexError, match="out of bounds"):
        function(values, np.full(rows, classes, "int32"))
