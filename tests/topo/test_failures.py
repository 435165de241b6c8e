"""Errors of rewriters are reported, and the graph stays unchanged."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.gof import Apply, FunctionGraph, InconsistencyError, Op, Optimizer
from theano.tensor.opt import topo_constant_folding

import optdb
from tests.effort import examples
from tests.topo.graphs import PLAIN, graph_of, ops, rewriter, run

VALUE = np.array([0.5, 1.0, 2.0])


def same_values(fgraph, inputs, *outputs):
    """Check that `fgraph` still computes `outputs`."""
    args = [VALUE for _ in inputs]
    before = theano.function(inputs, outputs, mode=PLAIN)(*args)
    after = theano.function(fgraph.inputs, fgraph.outputs, mode=PLAIN)(*args)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-12)


@rewriter([tt.exp])
def broken(fgraph, node):
    raise RuntimeError("the rewriter is broken")


@rewriter([tt.exp])
def asserting(fgraph, node):
    raise AssertionError("the rewriter does not believe it")


@rewriter([tt.sin])
def sin_to_cos(fgraph, node):
    return [tt.cos(node.inputs[0])]


@pytest.mark.slow_cases("warn")
@pytest.mark.parametrize("on_error", ["warn", "ignore"])
def test_an_exception_does_not_keep_others_from_working(on_error, caplog):
    x = tt.dvector("x")
    fgraph = graph_of([x], tt.sin(tt.exp(x)))
    with theano.change_flags(on_opt_error=on_error):
        result = run(fgraph, broken, sin_to_cos)
    assert ops(fgraph) == [tt.exp, tt.cos]
    assert result.converged
    assert ("the rewriter is broken" in caplog.text) == (on_error == "warn")
    assert ("Optimization failure due to: broken" in caplog.text) == (on_error == "warn")


def test_an_exception_is_raised_where_the_user_wants_it():
    x = tt.dvector("x")
    fgraph = graph_of([x], tt.exp(x))
    features = list(fgraph._features)
    with theano.change_flags(on_opt_error="raise"), pytest.raises(RuntimeError, match="broken"):
        run(fgraph, broken)
    fgraph.check_integrity()
    assert fgraph._features == features, "the engine has let go of the graph"


@pytest.mark.parametrize("on_error", ["warn", "ignore", "raise"])
def test_an_assertion_is_always_raised(on_error):
    x = tt.dvector("x")
    with theano.change_flags(on_opt_error=on_error), pytest.raises(AssertionError, match="believe"):
        run(graph_of([x], tt.exp(x)), asserting)


def test_a_callback_of_ones_own_hears_of_it():
    heard = []
    x = tt.dvector("x")
    fgraph = graph_of([x], tt.exp(x))
    run(fgraph, broken, failure_callback=lambda *args: heard.append(args))
    ((error, navigator, pairs, source, node),) = heard
    assert isinstance(error, RuntimeError)
    assert source is broken
    assert pairs == [(node.outputs[0], None)]
    assert navigator.failure_callback is not None


def test_without_a_callback_it_is_raised():
    x = tt.dvector("x")
    with pytest.raises(RuntimeError, match="broken"):
        run(graph_of([x], tt.exp(x)), broken, failure_callback=None)


def offers(replacement):
    """Return a rewriter that offers ``replacement(node)`` for exp(x)."""

    @rewriter([tt.exp])
    def offering(fgraph, node):
        return replacement(node)

    return offering


UNFIT = {
    "dtype": lambda node: [tt.cast(node.outputs[0], "float32")],
    "more dimensions": lambda node: [tt.exp(node.inputs[0]).dimshuffle("x", 0)],
    "no list": lambda node: tt.exp(node.inputs[0]),
    "a number": lambda node: [3.0],
    "true": lambda node: True,
    "too many": lambda node: [tt.exp(node.inputs[0])] * 2,
    "none at all": lambda node: [],
    "drops what is used": lambda node: [None],
    "an unknown input": lambda node: [tt.exp(tt.dvector("nobody gave this"))],
    "keeps what it removes": lambda node: {node.outputs[0]: tt.exp(node.inputs[0]), "remove": [node.inputs[0]]},
}


@pytest.mark.parametrize("kind", UNFIT)
@pytest.mark.parametrize("direction", ["out_to_in", "in_to_out"])
def test_what_does_not_fit_is_refused_and_reported(kind, direction, caplog, capfd):
    x = tt.dvector("x")
    outputs = tt.sin(tt.exp(x)), tt.sqrt(tt.exp(x))
    fgraph = graph_of([x], *outputs)
    with theano.change_flags(on_opt_error="warn"):
        result = run(fgraph, offers(UNFIT[kind]), sin_to_cos, direction=direction)
    assert "Optimization failure due to: offering" in caplog.text
    assert tt.exp in ops(fgraph)
    assert tt.cos in ops(fgraph), "the others go on"
    assert result.rules[0].applications == 0
    assert result.converged
    same_values(fgraph, [x], tt.cos(tt.exp(x)), outputs[1])


@pytest.mark.parametrize("kind", UNFIT)
def test_what_does_not_fit_is_an_error_where_errors_are_raised(kind, capfd):
    x = tt.dvector("x")
    fgraph = graph_of([x], tt.sin(tt.exp(x)))
    with theano.change_flags(on_opt_error="raise"), pytest.raises(Exception) as error:
        run(fgraph, offers(UNFIT[kind]))
    assert not isinstance(error.value, AssertionError)
    fgraph.check_integrity()
    same_values(fgraph, [x], tt.sin(tt.exp(x)))


def cycle_maker(kind):
    """Return a rewriter that replaces exp(x) by a variable that depends on exp(x)."""

    @rewriter([tt.exp])
    def cyclic(fgraph, node):
        ((user, _), *_) = node.outputs[0].clients
        if kind == "through a new node":
            return [tt.sqrt(user.outputs[0])]
        return [user.outputs[0]]

    return cyclic


@pytest.mark.parametrize("kind", ["through a new node", "through a node of the graph"])
@pytest.mark.parametrize("direction", ["out_to_in", "in_to_out"])
def test_a_cycle_is_refused_and_reported(kind, direction, caplog):
    x = tt.dvector("x")
    output = tt.cos(tt.sqr(tt.exp(x)))
    fgraph = graph_of([x], output)
    with theano.change_flags(on_opt_error="warn"):
        result = run(fgraph, cycle_maker(kind), sin_to_cos, direction=direction)
    assert "depend on itself" in caplog.text
    assert result.refused == 1
    assert result.converged
    assert ops(fgraph) == [tt.exp, tt.sqr, tt.cos]
    same_values(fgraph, [x], output)


def test_a_cycle_is_an_error_where_errors_are_raised():
    x = tt.dvector("x")
    fgraph = graph_of([x], tt.cos(tt.sqr(tt.exp(x))))
    with theano.change_flags(on_opt_error="raise"), pytest.raises(InconsistencyError, match="depend on itself"):
        run(fgraph, cycle_maker("through a new node"))
    fgraph.check_integrity()


def test_a_dict_replaces_what_it_names():
    """If a rewriter returns a dict, it can replace outputs of the node and of other nodes."""

    @rewriter([tt.exp])
    def exp_and_its_user(fgraph, node):
        ((user, _),) = node.outputs[0].clients
        return {user.outputs[0]: tt.cosh(node.inputs[0]), "remove": [node]}

    x = tt.dvector("x")
    fgraph = graph_of([x], tt.sqrt(tt.sin(tt.exp(x))))
    result = run(fgraph, exp_and_its_user)
    assert ops(fgraph) == [tt.cosh, tt.sqrt]
    assert result.converged
    assert result.rules[0].applications == 1


class Pair(Op):
    """An op with two outputs, one of which may be unused."""

    __props__ = ("name",)

    def __init__(self, name):
        self.name = name

    def make_node(self, x):
        return Apply(self, [x], [x.type(), x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0], outputs[1][0] = inputs[0] + 1, inputs[0] * 2


@pytest.mark.parametrize("unused", [0, 1])
def test_none_stands_for_an_output_that_nobody_uses(unused):
    @rewriter([Pair])
    def half(fgraph, node):
        new = [node.inputs[0] + 1, node.inputs[0] * 2]
        new[unused] = None
        return new

    x = tt.dvector("x")
    output = Pair("p")(x)[1 - unused]
    fgraph = graph_of([x], output)
    run(fgraph, half)
    assert not any(isinstance(op, Pair) for op in ops(fgraph))
    same_values(fgraph, [x], output)


def test_all_outputs_are_replaced_or_none(capfd):
    """If the replacement of one output does not fit, the replacements of the other outputs are reverted."""

    @rewriter([Pair])
    def half_right(fgraph, node):
        return [node.inputs[0] + 1, tt.cast(node.inputs[0], "float32")]

    x = tt.dvector("x")
    outputs = Pair("p")(x)
    fgraph = graph_of([x], *[tt.sin(output) for output in outputs])
    with theano.change_flags(on_opt_error="ignore"):
        result = run(fgraph, half_right)
    assert result.refused == 1
    assert Pair("p") in ops(fgraph)
    same_values(fgraph, [x], *[tt.sin(output) for output in outputs])


class Fails(Op):
    """An op whose computation fails."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [tt.as_tensor_variable(x)], [tt.dvector()])

    def perform(self, node, inputs, outputs):
        raise ZeroDivisionError("this op always fails")


@pytest.mark.parametrize("where", ["in the graph", "in a replacement"])
def test_a_constant_that_cannot_be_computed_stays_an_expression(where, caplog):
    constant = tt.constant(VALUE)

    @rewriter([tt.exp])
    def to_failing(fgraph, node):
        return [tt.tanh(Fails()(constant.clone()))]

    x = tt.dvector("x")
    rewriters = [sin_to_cos]
    output = tt.sin(x) + Fails()(constant)
    if where == "in a replacement":
        output = tt.sin(x) + tt.exp(x)
        rewriters.append(to_failing)
    fgraph = graph_of([x], output)
    with theano.change_flags(on_opt_error="warn"):
        result = run(fgraph, *rewriters, final_rewriters=[topo_constant_folding])
    assert "this op always fails" in caplog.text
    assert "constant_folding" in caplog.text
    assert Fails() in ops(fgraph)
    assert tt.cos in ops(fgraph)
    assert result.converged
    assert result.folded == 0


def test_a_failing_fold_is_an_error_where_errors_are_raised():
    x = tt.dvector("x")
    fgraph = graph_of([x], x + Fails()(tt.constant(VALUE)))
    with theano.change_flags(on_opt_error="raise"), pytest.raises(ZeroDivisionError):
        run(fgraph, final_rewriters=[topo_constant_folding])


class Veto:
    """A feature that rejects given changes."""

    def __init__(self, refuses):
        self.refuses = refuses

    def validate(self, fgraph):
        if self.refuses(fgraph):
            raise InconsistencyError("veto")


def test_a_features_veto_is_silent(caplog):
    """A feature's veto is not an error: in-place rewriters try changes to find out whether they are allowed."""
    x = tt.dvector("x")
    fgraph = graph_of([x], tt.sin(x))
    fgraph.attach_feature(Veto(lambda graph: tt.cos in ops(graph)))
    with theano.change_flags(on_opt_error="raise"):
        result = run(fgraph, sin_to_cos)
    assert result.refused == 1
    assert result.converged
    assert ops(fgraph) == [tt.sin]
    assert caplog.text == ""


# -- random rewriters


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(data=st.data(), direction=st.sampled_from(["out_to_in", "in_to_out"]))
def test_random_replacements_leave_a_valid_graph(data, direction):
    """Replacements that make cycles or are vetoed are reverted; all other replacements are accepted.

    The rewriter offers drawn variables of the right type: from anywhere in the graph, or results of new nodes.
    """
    x, y = tt.dvector("x"), tt.dvector("y")
    pool = [x, y]
    for _ in range(data.draw(st.integers(3, 10), "nodes")):
        op = data.draw(st.sampled_from([tt.exp, tt.sin, tt.add, Pair("p")]), "op")
        args = [data.draw(st.sampled_from(pool)) for _ in range(2 if op == tt.add else 1)]
        made = op(*args)
        pool.extend(made if isinstance(made, list) else [made])
    fgraph = graph_of([x, y], *pool[-3:], x, y)
    x_, y_ = fgraph.inputs
    budget = [data.draw(st.integers(0, 12), "budget")]

    @rewriter()
    def anything(fgraph, node):
        if not budget[0]:
            return None
        budget[0] -= 1
        variables = [x_, y_, *(var for each in fgraph.toposort() for var in each.outputs)]

        def offer():
            var = data.draw(st.sampled_from(variables))
            return data.draw(st.sampled_from([lambda v: v, tt.cos, lambda v: tt.add(v, v)]))(var)

        return [offer() for _ in node.outputs]

    vetoed = data.draw(st.integers(0, 3), "vetoed")
    fgraph.attach_feature(Veto(lambda graph: vetoed and len(graph.apply_nodes) % 4 == vetoed))
    refusals = []

    def refused(error, navigator, pairs, source, node):
        assert isinstance(error, InconsistencyError), error
        refusals.append(error)

    result = run(fgraph, anything, direction=direction, failure_callback=refused, max_use_ratio=100)
    assert result.converged or result.ping_pong
    assert result.refused == len(refusals)
    assert len(fgraph.toposort()) == len(fgraph.apply_nodes), "no cycle, and no node that nobody needs"


def test_a_graph_rewriter_that_never_stops_is_stopped(caplog):
    class Swap(Optimizer):
        """A rewriter that exchanges sin and cos, and therefore changes the graph each time."""

        def apply(self, fgraph):
            (out,) = fgraph.outputs
            other = tt.cos if out.owner.op == tt.sin else tt.sin
            fgraph.replace(out, other(out.owner.inputs[0]), reason="swap")

    db = optdb.TopoOptDB()
    db.register("swap", Swap(), "always")
    x = tt.dvector()
    phase = db.query("+always")
    fgraph = FunctionGraph([x], [tt.sin(x)], clone=False)
    phase.optimize(fgraph)
    assert not phase.result.converged
    assert "swap" in phase.result.reason
    assert "max'ed out by 'swap'" in caplog.text
    fgraph.check_integrity()
