"""optdb behaves the same for each value of config.compute_test_value."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from optdb.host.api.fusion import has_c_code
from optdb.host.api.testvalues import optimizer_test_values, without_test_values
from tests.topo.graphs import STOCK, graph_of

SETTINGS = ("raise", "warn", "ignore", "pdb", "off")


@pytest.fixture(params=SETTINGS)
def setting(request, monkeypatch):
    """Build a graph without test values, and then set config.compute_test_value to each possible value."""
    monkeypatch.setattr("pdb.post_mortem", lambda *_: pytest.fail("stopped in the debugger"))
    monkeypatch.setattr("pdb.set_trace", lambda *_: pytest.fail("stopped in the debugger"))
    x = tt.dvector("x")
    w = theano.shared(np.arange(3.0), "w")
    loss = tt.log(1 + tt.exp(tt.dot(x, w) * 2)) + (x**2 / (1 + w**2)).sum()
    updates = [(w, w - 0.1 * theano.grad(loss, w))]
    with theano.change_flags(compute_test_value=request.param):
        yield request.param, x, w, loss, updates


def test_the_same_graph_is_compiled(setting):
    value, x, _, loss, updates = setting
    f = theano.function([x], loss, updates=updates, mode=optdb.mode(STOCK))
    assert theano.config.compute_test_value == value
    with theano.change_flags(compute_test_value="off"):
        plain = theano.function([x], loss, updates=updates, mode=optdb.mode(STOCK))
    assert [str(node) for node in f.maker.fgraph.toposort()] == [str(node) for node in plain.maker.fgraph.toposort()]
    assert any("Composite" in str(node) for node in f.maker.fgraph.apply_nodes), "nodes were fused"


def test_a_database_of_ones_own_optimizes(setting):
    """A database can optimize without `theano.function`, which would disable test values."""
    value, x, w, loss, _ = setting
    with theano.change_flags(compute_test_value="off"):
        fgraph = graph_of([x, w], loss)
    with optdb.enable():
        theano.compile.optdb.query("+fast_run").optimize(fgraph)
    assert any("Composite" in str(node) for node in fgraph.apply_nodes)
    assert theano.config.compute_test_value == value


@pytest.mark.parametrize("value", ["ignore", "warn", "raise"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int64"])
def test_test_values_without_elements_are_fused(dtype, value):
    """If an array's test value has no elements, the scalar of a Composite still has a test value."""
    x = tt.TensorType(dtype, (False, False))("x")
    x.tag.test_value = np.zeros((3, 0), dtype)
    with theano.change_flags(compute_test_value=value, compute_test_value_opt=value, on_opt_error="raise"):
        f = theano.function([x], tt.switch(x > 0, x * x + x, -x), mode=optdb.mode("FAST_RUN"))
    assert any("Composite" in str(node) for node in f.maker.fgraph.apply_nodes), "nodes were fused"
    np.testing.assert_array_equal(f(np.asarray([[2, 0]], dtype)), [[6, 0]])
    assert f(np.zeros((3, 0), dtype)).shape == (3, 0)


@pytest.mark.parametrize("dumps", [pickle.dumps, copy.deepcopy])
def test_functions_without_test_values_are_pickled_where_rewriters_ask_for_some(dumps):
    x = tt.dmatrix("x")
    with optdb.enable():
        function = theano.function([x], [x.T * 2, x[:2].sum(axis=0)], mode=STOCK)
    with theano.change_flags(compute_test_value="raise", compute_test_value_opt="raise"):
        assert dumps(function)


def test_functions_are_copied_and_pickled(setting):
    _, x, _, loss, _ = setting
    f = theano.function([x], loss, mode=optdb.mode(STOCK))
    for again in (pickle.loads(pickle.dumps(f)), copy.deepcopy(f)):
        np.testing.assert_allclose(again([1, 2, 3]), f([1, 2, 3]))


def test_scalar_ops_are_probed(setting):
    assert has_c_code(theano.scalar.add, ("float64", "float64"), "float64")


def test_test_values_of_the_optimizer_are_the_users():
    """Users set config.compute_test_value_opt to look for errors in rewriters."""
    with theano.change_flags(compute_test_value="raise", compute_test_value_opt="ignore"), optimizer_test_values():
        assert theano.config.compute_test_value == "ignore"
    with theano.change_flags(compute_test_value="raise"):
        with optimizer_test_values():
            assert theano.config.compute_test_value == "off"
        assert theano.config.compute_test_value == "raise"


def test_the_users_setting_comes_back_with_the_last_thread():
    with theano.change_flags(compute_test_value="raise"):
        inside, leave = threading.Event(), threading.Event()

        def hold():
            with without_test_values():
                inside.set()
                leave.wait()

        thread = threading.Thread(target=hold)
        with without_test_values():
            thread.start()
            inside.wait()
        assert theano.config.compute_test_value == "off"
        leave.set()
        thread.join()
        assert theano.config.compute_test_value == "raise"
