"""In copies of compiled functions, in-place nodes run after the nodes that read the same memory."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt

MATRIX = np.arange(9.0).reshape(3, 3)
#: Modes and methods that make a function from another function's optimized graph.
COPIES = {
    "copy": lambda f: f.copy(),
    "copy of a copy": lambda f: f.copy().copy(),
    "shared memory": lambda f: f.copy(share_memory=True),
    "pickle": lambda f: pickle.loads(pickle.dumps(f)),
    "pickled copy": lambda f: pickle.loads(pickle.dumps(f.copy())),
    "without updates": lambda f: f.copy(delete_updates=True),
}


def modes():
    return [theano.Mode(linker, "fast_run") for linker in ("py", "vm", "cvm" if theano.config.cxx else "vm_nogc")]


def agree(f, g, *args):
    for expected, got in zip(f(*args), g(*args), strict=True):
        np.testing.assert_allclose(got, expected)


@pytest.mark.parametrize("mode", modes(), ids=lambda mode: type(mode.linker).__name__)
@pytest.mark.parametrize("way", COPIES)
def test_readers_run_before_nodes_that_overwrite(way, mode):
    x = tt.dmatrix("x")
    outputs = [tt.tile(x, (2, 2)), tt.alloc(x, 2, 3, 3), tt.repeat(x, 2, axis=1), tt.inc_subtensor(x[0], 7.0)]
    f = theano.function([x], outputs, mode=mode)
    agree(f, COPIES[way](f), MATRIX)


def overwriting(mode):
    """Return a function and its shared variable, which the function both reads and overwrites with a product."""
    x, y = tt.dmatrices("x", "y")
    w = theano.shared(np.ones((3, 3)), name="w")
    f = theano.function([x, y], [w + 1, w.sum(axis=0)], updates=[(w, w - 0.1 * tt.dot(x, y))], mode=mode)
    assert any(getattr(node.op, "destroy_map", None) for node in f.maker.fgraph.apply_nodes)
    return f, w


@pytest.mark.parametrize("mode", modes(), ids=lambda mode: type(mode.linker).__name__)
@pytest.mark.parametrize("again", [lambda f: f, lambda f: f.copy()], ids=["once", "twice"])
def test_swapped_variables(again, mode):
    f, w = overwriting(mode)
    other = theano.shared(np.full((3, 3), 2.0), name="other")
    g = again(f.copy(swap={w: other}))
    for _ in range(3):
        before = other.get_value()
        plus, total = g(MATRIX, MATRIX)
        np.testing.assert_allclose(plus, before + 1)
        np.testing.assert_allclose(total, before.sum(axis=0))
        np.testing.assert_allclose(other.get_value(), before - 0.1 * MATRIX @ MATRIX)
    np.testing.assert_array_equal(w.get_value(), np.ones((3, 3)))


def test_the_order_is_that_of_the_original():
    """Copies have a destroy handler, so their in-place nodes wait for the same nodes as in the original."""
    f, _ = overwriting(theano.Mode("py", "fast_run"))
    names = [
        {str(node): sorted(map(str, before)) for node, before in function.maker.fgraph.orderings().items() if before}
        for function in (f, f.copy(), f.copy().copy())
    ]
    assert names[0] == names[1] == names[2] != {}


def test_a_graph_without_in_place_nodes_gets_no_handler():
    x = tt.dvector("x")
    f = theano.function([x], x + 1, mode=theano.Mode("py", "fast_compile"))
    assert not hasattr(f.copy().maker.fgraph, "destroy_handler")


@pytest.mark.parametrize("updated_first", [True, False])
@pytest.mark.parametrize("mode", modes(), ids=lambda mode: type(mode.linker).__name__)
def test_a_variable_swapped_for_another_one_of_the_same_function(mode, updated_first):
    """One variable is two inputs of the copy; its next value overwrites one input, and the other is read later."""
    w, u = theano.shared(np.ones(3), name="w"), theano.shared(np.full(3, 2.0), name="u")
    following = w * 3
    total = following.sum() * u
    f = theano.function([], [total, u] if updated_first else [u, total], updates=[(w, following)], mode=mode)
    g = f.copy(swap={u: w})
    for value in (1.0, 3.0, 9.0):
        results = sorted(g(), key=lambda result: result[0])
        np.testing.assert_allclose(results, [np.full(3, value), np.full(3, value * 9 * value)])
        np.testing.assert_allclose(w.get_value(), np.full(3, value * 3))
    np.testing.assert_allclose(u.get_value(), np.full(3, 2.0))


@pytest.mark.parametrize("mode", modes(), ids=lambda mode: type(mode.linker).__name__)
def test_without_updates_nothing_is_overwritten(mode):
    """A copy without updates may still compute next values, but must not overwrite the current values."""
    x = tt.dvector("x")
    w = theano.shared(np.ones(3), name="w")
    following = tt.exp(w) + x
    f = theano.function([x], tt.cumsum(following), updates=[(w, following)], mode=mode)
    g = f.copy(delete_updates=True)
    for _ in range(3):
        np.testing.assert_allclose(g(np.arange(3.0))[0], np.cumsum(np.e + np.arange(3.0)))
        np.testing.assert_array_equal(w.get_value(), np.ones(3))
