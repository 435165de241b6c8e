"""The engine rewrites PyTensor's graphs with equal values and no more nodes, and can be disabled again."""

from __future__ import annotations

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.rewriting.basic import EquilibriumGraphRewriter, node_rewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.tensor.rewriting.basic import register_canonicalize

import optdb.pytensor
from optdb.host import pytensor as pytensor_host
from optdb.pytensor import rewriting
from profiles.pytensor import rewriting as measuring
from profiles.pytensor import unrolled
from tests.processes import output

#: This mode computes values without a compiler.
MODE = Mode(linker="py", optimizer="fast_run")


@pytest.fixture
def engine(monkeypatch):
    """The engine rewrites graphs of any size."""
    with optdb.pytensor.enable():
        monkeypatch.setattr(rewriting, "LEAST_NODES", 0)
        yield


def patched():
    """Return the values of all attributes that `enable` replaces."""
    return {
        (str(patch.owner), patch.name): vars(patch.owner).get(patch.name) for patch in pytensor_host.patches.patches
    }


def test_disable_and_the_context_manager_put_everything_back():
    before = patched()
    assert len(before) > 10
    optdb.pytensor.enable()
    assert optdb.pytensor.is_enabled()
    assert all(value is not before[at] for at, value in patched().items())
    optdb.pytensor.disable()
    assert patched() == before
    with optdb.pytensor.enable(), optdb.pytensor.enable():
        assert optdb.pytensor.is_enabled()
    assert patched() == before
    assert not optdb.pytensor.is_enabled()


def test_an_inner_context_manager_leaves_the_outer_one_on():
    with optdb.pytensor.enable():
        with optdb.pytensor.enable():
            pass
        assert optdb.pytensor.is_enabled()


@pytest.mark.slow
def test_the_environment_enables():
    code = "import optdb.pytensor; print(optdb.pytensor.is_enabled())"
    assert output(code) == "False"
    assert output(f"import os; os.environ['{optdb.pytensor.switch.TOPO_VARIABLE}'] = '1'\n{code}") == "True"


@pytest.mark.slow
def test_a_second_host_is_refused():
    code = """
        import optdb.pytensor
        from optdb import host
        with optdb.pytensor.enable():
            try:
                host.bind("theano")
            except host.SecondHost as error:
                print(error)
    """
    assert "serves pytensor in this process" in output(code)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gru", "garch", "ode", "kalman"])
def test_unrolled_graphs_have_no_more_nodes_and_the_same_values(name, monkeypatch):
    size = 4
    monkeypatch.setattr(rewriting, "LEAST_NODES", 0)
    stock, ours = measuring.build(name, size), measuring.build(name, size)
    small = unrolled.build(name, 2)
    expected = measuring.values(small, MODE)
    before = measuring.rewrite(stock)
    with optdb.pytensor.enable():
        after = measuring.rewrite(ours)
        computed = measuring.values(small, MODE)
    assert after.nodes <= before.nodes
    assert after.inplace >= before.inplace or after.nodes < before.nodes
    for value, other in zip(computed, expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixture_of_mixtures", "additive_gp"])
def test_models_of_many_parts_have_no_more_nodes(name):
    before = measuring.rewrite(unrolled.build(name, 4))
    with optdb.pytensor.enable():
        after = measuring.rewrite(unrolled.build(name, 4))
    assert after.nodes <= before.nodes
    assert after.inplace >= before.inplace or after.nodes < before.nodes


UNARY = [pt.exp, pt.tanh, pt.neg, pt.sqr, pt.abs, pt.sigmoid, lambda x: x.sum(axis=0), lambda x: x[0] + 0 * x]
BINARY = [pt.add, pt.sub, pt.mul, pt.maximum, lambda x, y: x / (1 + pt.sqr(y)), lambda x, y: pt.where(x > y, x, y)]


def random_graph(choices):
    """Return a graph over two matrices; each of the drawn choices applies an operation to earlier results."""
    x, y = pt.matrix("x", dtype="float64"), pt.matrix("y", dtype="float64")
    made = [x, y, pt.as_tensor_variable(2.0)]
    for which, first, second in choices:
        a, b = made[first % len(made)], made[second % len(made)]
        if which < len(UNARY) and a.ndim:
            made.append(UNARY[which](a))
        else:
            made.append(BINARY[which % len(BINARY)](a, b))
    return [x, y], made[-3:]


NUMBERS = st.integers(0, 40)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), NUMBERS, NUMBERS), min_size=1, max_size=12))
def test_random_graphs_have_the_same_values(choices):
    inputs, outputs = random_graph(choices)
    args = [np.linspace(-1, 1, 6).reshape(2, 3), np.linspace(0.5, 2, 6).reshape(2, 3)]
    expected = pytensor.function(inputs, outputs, mode=MODE, on_unused_input="ignore")(*args)
    with optdb.pytensor.enable(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewriting, "LEAST_NODES", 0)
        computed = pytensor.function(inputs, outputs, mode=MODE, on_unused_input="ignore")(*args)
    for value, other in zip(computed, expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-9, atol=1e-12)


def equilibrium(*rewriters, **kwargs):
    return EquilibriumGraphRewriter(list(rewriters), max_use_ratio=10, **kwargs)


def graph_of(*outputs):
    from pytensor.graph.fg import FunctionGraph

    return FunctionGraph(outputs=list(outputs), clone=False)


def test_a_rewriter_that_raises_leaves_the_graph_as_it_was(engine):
    @node_rewriter([pt.exp])
    def raising(fgraph, node):
        raise RuntimeError("on purpose")

    failures = []
    x = pt.vector("x")
    out = pt.exp(x) + 1
    graph = graph_of(out)
    nodes = set(graph.apply_nodes)
    equilibrium(raising, failure_callback=lambda error, *args: failures.append(str(error))).apply(graph)
    assert failures and set(failures) == {"on purpose"}
    assert graph.apply_nodes == nodes
    graph.check_integrity()


def test_a_replacement_that_depends_on_itself_is_refused(engine):
    @node_rewriter([pt.exp])
    def cyclic(fgraph, node):
        [(client, _)] = fgraph.clients[node.outputs[0]]
        return [client.outputs[0]]

    failures = []
    out = pt.tanh(pt.exp(pt.vector("x"))) + 1
    graph = graph_of(out)
    nodes = set(graph.apply_nodes)
    with pytest.MonkeyPatch.context() as patch, pytensor.config.change_flags(on_opt_error="raise"):
        patch.setattr(
            "pytensor.graph.rewriting.basic.NodeProcessingGraphRewriter.warn", lambda *a: failures.append(a[0])
        )
        equilibrium(cyclic, failure_callback=EquilibriumGraphRewriter.warn_inplace).apply(graph)
    assert "depend on itself" in str(failures[0])
    assert graph.apply_nodes == nodes


def test_rewriters_registered_after_enable_take_part(engine):
    @register_canonicalize("optdb_test_late")
    @node_rewriter([pt.exp])
    def late(fgraph, node):
        return [pt.tanh(node.inputs[0])]

    x = pt.vector("x", dtype="float64")
    mode = Mode(linker="py", optimizer=RewriteDatabaseQuery(include=["fast_run", "optdb_test_late"]))
    try:
        f = pytensor.function([x], pt.exp(x), mode=mode)
        assert f([1.0]) == pytest.approx(np.tanh(1.0))
    finally:
        from pytensor.compile.mode import optdb as database

        canonicalize = database["canonicalize"]
        for tag in [tag for tag, members in canonicalize.__db__.items() if late in members]:
            canonicalize.__db__[tag].discard(late)


def test_rewriters_that_undo_each_other_are_stopped(engine):
    @node_rewriter([pt.exp])
    def forth(fgraph, node):
        return [pt.tanh(node.inputs[0])]

    @node_rewriter([pt.tanh])
    def back(fgraph, node):
        return [pt.exp(node.inputs[0])]

    from optdb.topo.result import collect

    graph = graph_of(pt.exp(pt.vector("x")))
    with collect() as results:
        equilibrium(forth, back).apply(graph)
    assert {"forth", "back"} == {results[0].ping_pong[0].rule, results[0].ping_pong[0].undone_by}


def test_profiles_have_the_form_of_pytensors(engine, capsys):
    import io

    @node_rewriter([pt.exp])
    def of_exp(fgraph, node):
        return [pt.tanh(node.inputs[0])]

    rewriter = equilibrium(of_exp)
    profile = rewriter.apply(graph_of(pt.exp(pt.vector("x"))))
    stream = io.StringIO()
    rewriter.print_profile(stream, profile)
    assert "of_exp" in stream.getvalue()
    assert "of_exp" in str(rewriter.merge_profile(profile, profile)[6])


def test_small_graphs_are_left_to_pytensor():
    from optdb.topo.result import collect

    x = pt.vector("x")
    with optdb.pytensor.enable(), collect() as results:
        measuring.rewrite(unrolled.Graph([x], [pt.exp(x).sum()]))
    assert not results


def test_an_array_is_overwritten_where_its_type_does_not_tell_a_length():
    x, y = pt.matrix("x", dtype="float64"), pt.matrix("y", dtype="float64", shape=(None, 8))
    out = pt.exp(pt.cumsum(x, axis=1) + y)
    with optdb.pytensor.enable():
        f = pytensor.function([x, y], out, mode=MODE)
    assert f.maker.fgraph.outputs[0].owner.op.destroy_map
    args = np.full((8, 8), 0.1), np.eye(8)
    np.testing.assert_array_equal(f(*args), pytensor.function([x, y], out, mode=MODE)(*args))
    with pytest.raises(ValueError, match="broadcast"):
        f(np.ones((1, 8)), np.eye(8)[:3])


@pytest.mark.parametrize("other", [pt.vector("other", dtype="float64"), pt.matrix("other", dtype="float32")])
def test_an_array_of_another_shape_or_dtype_is_not_overwritten(other):
    row = pt.row("row", dtype="float64")
    with optdb.pytensor.enable():
        f = pytensor.function([row, other], pt.exp(row) + pt.tanh(pt.cumsum(other, axis=0)) + row, mode=MODE)
    for node in f.maker.fgraph.apply_nodes:
        for out, [slot] in node.op.destroy_map.items():
            assert node.inputs[slot].type.broadcastable == node.outputs[out].type.broadcastable
            assert node.inputs[slot].type.dtype == node.outputs[out].type.dtype


@pytest.mark.slow
def test_distribution_from_inputs_to_outputs_where_it_explodes():
    """The engine limits `local_greedy_distributor`, which PyTensor itself applies hundreds of times to this graph."""
    from optdb.topo.result import collect

    with optdb.pytensor.enable(), collect() as results:
        after = measuring.rewrite(unrolled.garch(20))
    [canonicalize] = [result for result in results if result.name == "canonicalize"]
    [distributed] = [rule for rule in canonicalize.rules if rule.name == "local_greedy_distributor"]
    assert distributed.applications <= rewriting._DISTRIBUTIONS + canonicalize.nodes_before // 20
    assert after.nodes <= measuring.rewrite(unrolled.garch(20)).nodes


def test_the_graph_of_the_function_is_measured_and_not_one_that_computes_a_constant():
    x = pt.matrix("x", dtype="float64")
    graph = unrolled.Graph([x], [x @ pt.diag(pt.constant(np.ones((1, 2)))[0] + 1).T])
    measured = measuring.rewrite(graph, MODE)
    f = pytensor.function(graph.inputs, graph.outputs, mode=MODE)
    assert measured.nodes == len(f.maker.fgraph.apply_nodes)


def test_modes_keep_their_rewriters():
    assert get_mode("NUMBA").optimizer is not None
    with optdb.pytensor.enable():
        x = pt.vector("x", dtype="float64")
        f = pytensor.function([x], [pt.exp(x), pt.exp(x)], mode=MODE)
    assert sum(node.op == pt.exp for node in f.maker.fgraph.apply_nodes) <= 1
