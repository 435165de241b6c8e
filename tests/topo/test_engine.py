"""The engine handles chains of rewrites, reaches a fixed point, respects limits, and runs in both directions."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof import Apply, Op
from theano.tensor.opt import ShapeFeature, topo_constant_folding

import optdb
from optdb.topo import TopoRewriter, collect
from tests.topo.graphs import PLAIN, STOCK, applicable, graph_of, ops, rewriter, run, uncached_constants

DIRECTIONS = ("out_to_in", "in_to_out")


class Step(Op):
    """An identity op with a number, which rewriters count down."""

    __props__ = ("number",)

    def __init__(self, number):
        self.number = number

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0].copy()

    def infer_shape(self, node, shapes):
        return shapes


@rewriter([Step])
def count_down(fgraph, node):
    """Replace Step(n) by Step(n - 1), down to Step(0)."""
    if node.op.number > 0:
        return [Step(node.op.number - 1)(node.inputs[0])]
    return None


# -- rewriters applied to the results of others


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_chain_of_rewrites_runs_to_its_end(direction):
    x = tt.dvector("x")
    fgraph = graph_of([x], Step(30)(tt.exp(Step(20)(x))))
    result = run(fgraph, count_down, direction=direction, max_use_ratio=100)
    assert ops(fgraph) == [Step(0), tt.exp, Step(0)]
    assert result.converged
    assert result.applications == 50
    assert result.nodes_made == 50


def test_a_rewriter_sees_its_replacement_inside_the_graph():
    """When a rewriter gets a node that another rewriter made, the graph, clients and shapes of the node are known."""
    seen = []

    @rewriter([Step])
    def look(fgraph, node):
        assert node in fgraph.apply_nodes
        assert node.fgraph is fgraph
        assert node.outputs[0] in fgraph.variables
        clients = [client for client, _ in node.outputs[0].clients]
        shape = fgraph.shape_feature.shape_of[node.outputs[0]]
        seen.append((node.op.number, clients, len(shape)))
        return [Step(node.op.number - 1)(node.inputs[0])] if node.op.number else None

    x = tt.dmatrix("x")
    fgraph = graph_of([x], tt.exp(Step(5)(x)))
    fgraph.attach_feature(ShapeFeature())
    (user,) = (node for node in fgraph.apply_nodes if node.op == tt.exp)
    run(fgraph, look, max_use_ratio=100)
    first_look = seen[:6]
    assert [number for number, _, _ in first_look] == [5, 4, 3, 2, 1, 0]
    assert all(clients == [user] and ndim == 2 for _, clients, ndim in seen)


@pytest.mark.parametrize("exponent", [2**n for n in range(2, 11)])
def test_powers_become_repeated_squares(exponent):
    """The engine rewrites x ** 1024 ten times in a row; Theano alone gives up after x ** 512."""
    x = tt.dvector("x")
    f = theano.function([x], x**exponent, mode=optdb.mode(STOCK))
    graph_ops = [op for node in f.maker.fgraph.toposort() for op in _scalar_ops(node.op)]
    assert [str(op).partition("{")[0] for op in graph_ops] == ["sqr"] * int(np.log2(exponent))
    value = np.array([-1.001, 0.0, 0.5, 1.0, 1.0003, 1.01])
    np.testing.assert_allclose(f(value), value**exponent, rtol=1e-10)


def _scalar_ops(op):
    """Return the scalar ops inside an op, however they were fused."""
    if hasattr(op, "scalar_op"):
        return _scalar_ops(op.scalar_op)
    if not isinstance(op, theano.scalar.Composite):
        return [op]
    return [inner for node in op.fgraph.toposort() for inner in _scalar_ops(node.op)]


def test_theano_alone_leaves_the_largest_power():
    x = tt.dvector("x")
    f = theano.function([x], x**1024, mode=STOCK)
    assert any(isinstance(op, theano.scalar.Pow) for node in f.maker.fgraph.toposort() for op in _scalar_ops(node.op))


@pytest.mark.parametrize("exponent", [1023, 1025, 2048, 1024.5, -1024, 600])
def test_other_powers_are_left_to_theano(exponent):
    x = tt.dvector("x")
    ours = theano.function([x], x**exponent, mode=optdb.mode(STOCK))
    stock = theano.function([x], x**exponent, mode=STOCK)
    assert len(ours.maker.fgraph.apply_nodes) == len(stock.maker.fgraph.apply_nodes)
    value = np.array([0.9, 1.0, 1.1])
    np.testing.assert_allclose(ours(value), stock(value), rtol=1e-10)


def test_integer_powers_stay_integers():
    x = tt.lvector("x")
    f = theano.function([x], x**1024, mode=optdb.mode(STOCK))
    assert f([0, 1, -1]).tolist() == [0, 1, 1]
    assert f([1]).dtype == "int64"


# -- the fixed point


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_change_far_away_is_noticed(direction):
    """If a rewriter inspects a node three levels below its own, it is tried again when that node changes."""

    @rewriter([tt.exp])
    def exp_over_step0(fgraph, node):
        var = node.inputs[0]
        for _ in range(3):
            if var.owner is None:
                return None
            if var.owner.op == Step(0):
                return [tt.log(node.inputs[0])]
            var = var.owner.inputs[0]
        return None

    x = tt.dvector("x")
    fgraph = graph_of([x], tt.exp(tt.sqrt(tt.sin(Step(3)(x)))))
    result = run(fgraph, exp_over_step0, count_down, direction=direction, max_use_ratio=100)
    assert ops(fgraph) == [Step(0), tt.sin, tt.sqrt, tt.log]
    assert result.converged


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_who_loses_a_client_is_looked_at_again(direction):
    """When a node has lost a client, rewriters are tried again: some only apply to nodes with a single client."""

    @rewriter([tt.exp])
    def lone_exp(fgraph, node):
        return [tt.sinh(node.inputs[0])] if len(node.outputs[0].clients) == 1 else None

    @rewriter([tt.sqrt])
    def drop_sqrt(fgraph, node):
        return [tt.zeros_like(x_of(fgraph))]

    def x_of(fgraph):
        return fgraph.inputs[0]

    x = tt.dvector("x")
    e = tt.exp(x)
    fgraph = graph_of([x], tt.sin(e), tt.sqrt(e))
    assert run(fgraph, lone_exp, drop_sqrt, direction=direction, max_use_ratio=100).converged
    assert tt.exp not in ops(fgraph)
    assert tt.sinh in ops(fgraph)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_both_directions_visit_in_their_order(direction):
    seen = []

    @rewriter()
    def look(fgraph, node):
        seen.append(node.op.number)

    x = tt.dvector("x")
    run(graph_of([x], Step(3)(Step(2)(Step(1)(x)))), look, direction=direction)
    assert seen == ([3, 2, 1] if direction == "out_to_in" else [1, 2, 3])


def test_an_unknown_direction_is_refused():
    with pytest.raises(ValueError, match="sideways"):
        TopoRewriter([], direction="sideways")


def moderate_graphs():
    """Yield graphs of several dozen nodes, which most phases change."""
    x, y, w = tt.dmatrix("x"), tt.dvector("y"), tt.dmatrix("w")
    i = tt.lscalar("i")
    hidden = tt.tanh(tt.dot(x, w) + y)
    loss = tt.nnet.categorical_crossentropy(tt.nnet.softmax(hidden), tt.ones((x.shape[0], 4)) / 4).mean()
    density = tt.log(tt.sum(tt.exp(-((x - y) ** 2) / 2), axis=1)).sum()
    yield "softmax", [x, y, w], [loss, *theano.grad(loss, [w, y])]
    yield "density", [x, y], [density, theano.grad(density, y)]
    yield "powers", [x], [x**4 / x**2 * 3 / 3, (x**8).sum(), tt.sqrt(x) ** 2]
    yield "shapes", [x, i], [x[:, ::-1][1:i].T.reshape((-1,)).shape[0] + tt.join(0, x, x).shape[1], x[::-1][::-1]]
    yield "switch", [x, y], [tt.switch(x > 0, x, -x).max(axis=0) * 0 + tt.cast(y > 0, "float64") * 1.0]


PHASES = ("canonicalize", "stabilize", "specialize", "specialize_device", "uncanonicalize")


@pytest.mark.parametrize("inputs, outputs", [pytest.param(*graph, id=name) for name, *graph in moderate_graphs()])
def test_converged_means_that_no_rewriter_applies(inputs, outputs):
    """After a phase has run, none of its rewriters applies to any remaining node."""
    fgraph = graph_of(inputs, *outputs)
    optimizer = optdb.mode(STOCK).optimizer
    left, phases = {}, []
    with uncached_constants():
        for member in optimizer:
            member.add_requirements(fgraph)
        for member in optimizer:
            if member.name == "elemwise_fusion":
                break
            member.apply(fgraph)
            if member.name in PHASES:
                assert isinstance(member, TopoRewriter)
                phases.append(member.name)
                assert member.result.converged
                left[member.name] = applicable(fgraph, member.get_local_optimizers())
    fgraph.check_integrity()
    assert {"canonicalize", "stabilize", "specialize"} <= {*phases}
    assert {phase: found for phase, found in left.items() if found} == {}


def test_a_second_run_changes_nothing():
    x = tt.dmatrix("x")
    fgraph = graph_of([x], tt.exp(x * 2 / 2) ** 2 / x.T.T.shape[0])
    with optdb.enable(), uncached_constants():
        for _ in range(2):
            phase = theano.compile.optdb["canonicalize"].query("+fast_run")
            phase.optimize(fgraph)
    assert phase.result.applications == 0
    assert phase.result.converged


# -- constants


def constant(value, dtype):
    return tt.constant(np.asarray(value, dtype)).clone()


@pytest.mark.parametrize("dtype", ["bool", "int8", "float32", "float64"])
@pytest.mark.parametrize(
    "make",
    [
        lambda zero, one: zero.dimshuffle("x") / zero.flatten(),
        lambda zero, one: zero / zero,
        lambda zero, one: zero / (one - one if one.dtype != "bool" else zero),
        lambda zero, one: zero * (one / zero),
        lambda zero, one: (one / zero) ** zero * zero,
        lambda zero, one: tt.log(zero) * zero,
        lambda zero, one: tt.switch(zero, one / zero, tt.log(zero)) * zero,
    ],
)
def test_a_constant_has_the_value_that_it_has_without_rewriters(make, dtype):
    """Rewriters such as 0 / x = 0 do not apply to expressions that can be constant-folded."""
    out = make(constant(0, dtype), constant(1, dtype))
    with np.errstate(all="ignore"):
        plain = theano.function([], out, mode=PLAIN)()
        optimized = theano.function([], out, mode=optdb.mode(STOCK))()
    np.testing.assert_array_equal(optimized, plain)


def test_constants_are_folded_before_rewriters_see_what_uses_them():
    """Expressions that become constant during the run are also folded before rewriters visit their clients."""
    seen = []

    @rewriter([tt.exp])
    def look(fgraph, node):
        seen.append(node.inputs[0])

    @rewriter([tt.sinh])
    def to_one(fgraph, node):
        return [constant(1, "float64")]

    x = tt.dscalar("x")
    fgraph = graph_of([x], tt.exp(x) + tt.exp(tt.cos(constant(2, "float64"))), tt.exp(tt.sqrt(tt.sinh(x)) + 1))
    run(fgraph, look, to_one, final_rewriters=[topo_constant_folding], direction="in_to_out")
    assert set(seen) == {fgraph.inputs[0]}
    assert fgraph.outputs[1].owner is None


# -- limits


@rewriter([tt.exp])
def grow(fgraph, node):
    """exp(x) becomes exp(exp(x)), endlessly."""
    return [tt.exp(tt.exp(node.inputs[0]))]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_growth_is_stopped_and_named(direction, caplog):
    x = tt.dvector("x")
    fgraph = graph_of([x], tt.exp(x))
    with theano.change_flags(on_opt_error="warn"):
        result = run(fgraph, grow, direction=direction, max_use_ratio=0.5)
    assert not result.converged
    assert "grow" in result.reason
    assert "max_use_ratio" in result.reason
    assert "max'ed out by 'grow'" in caplog.text
    assert "stopped" in str(result)
    # the number of applications was limited to half the largest number of nodes
    assert result.rules[0].applications <= 0.5 * result.nodes_most + 1


@rewriter([tt.sinh])
def feed_on_itself(fgraph, node):
    """Add a client to a node, so that the rewriter can be applied to this node again."""
    return [tt.exp(node.outputs[0])]


@rewriter([tt.sinh])
def double(fgraph, node):
    """Replace a node by two nodes of the same kind."""
    return [tt.sinh(node.inputs[0]) + tt.sinh(node.inputs[0] + 1)]


@pytest.mark.slow_cases("1-double", "10-feed_on_itself", "10-double")
@pytest.mark.parametrize("explode", [feed_on_itself, double])
@pytest.mark.parametrize("depth", [1, 10])
def test_growth_that_outruns_its_own_bound_is_stopped(explode, depth, caplog):
    """Nodes that an exploding rewriter makes do not raise the limit on its applications."""
    x = tt.dvector("x")
    out = x
    for _ in range(depth):
        out = tt.sinh(out)
    fgraph = graph_of([x], out * 2 + tt.exp(x))
    before = len(fgraph.apply_nodes)
    with theano.change_flags(on_opt_error="warn"):
        result = run(fgraph, explode)
    assert not result.converged
    assert f"'{explode.__name__}'" in result.reason
    assert f"{before} " in result.reason
    assert f"max'ed out by '{explode.__name__}'" in caplog.text
    assert result.nodes_most < 25_000


def test_an_inlined_graph_is_no_explosion():
    """A rewriter can replace a node by hundreds of nodes, to each of which another rewriter then applies."""

    @rewriter([tt.sinh])
    def inline(fgraph, node):
        out = node.inputs[0]
        for _ in range(500):
            out = Step(1)(out)
        return [out]

    x = tt.dvector("x")
    fgraph = graph_of([x], tt.sinh(x))
    result = run(fgraph, inline, count_down)
    assert result.converged
    assert ops(fgraph) == [Step(0)] * 500


def test_the_limit_is_an_error_where_errors_are_raised():
    x = tt.dvector("x")
    with theano.change_flags(on_opt_error="raise"), pytest.raises(AssertionError, match="max'ed out by 'grow'"):
        run(graph_of([x], tt.exp(x)), grow, max_use_ratio=0.5)


def test_the_limit_is_the_users():
    """config.optdb.max_use_ratio is read when the rewriter is made."""
    with theano.change_flags(**{"optdb.max_use_ratio": 3.0}):
        assert TopoRewriter([]).max_use_ratio == 3.0
    x = tt.dvector("x")
    assert not run(graph_of([x], Step(20)(x)), count_down, max_use_ratio=10).converged
    assert run(graph_of([x], Step(20)(x)), count_down, max_use_ratio=20).converged


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_rewriters_that_undo_each_other_are_named(direction, caplog):
    @rewriter([tt.exp])
    def exp_to_log(fgraph, node):
        return [tt.log(node.inputs[0])]

    @rewriter([tt.log])
    def log_to_exp(fgraph, node):
        return [tt.exp(node.inputs[0])]

    x = tt.dvector("x")
    fgraph = graph_of([x], tt.sin(tt.exp(x)))
    result = run(fgraph, exp_to_log, log_to_exp, direction=direction, max_use_ratio=1000)
    assert not result.converged
    assert {result.ping_pong[0].rule, result.ping_pong[0].undone_by} == {"exp_to_log", "log_to_exp"}
    assert "undo each other" in result.reason
    assert "undo each other" in caplog.text
    assert result.applications < 20
    assert tt.sin in ops(fgraph)


def test_three_in_a_circle_are_found():
    def turn(name, old, new):
        def f(fgraph, node):
            return [new(node.inputs[0])]

        f.__name__ = name
        return rewriter([old])(f)

    x = tt.dvector("x")
    circle = [turn("a", tt.exp, tt.log), turn("b", tt.log, tt.sin), turn("c", tt.sin, tt.exp)]
    result = run(graph_of([x], tt.exp(x)), *circle, max_use_ratio=1000)
    assert not result.converged
    assert result.ping_pong
    assert result.applications < 30


# -- a part of the graph


def test_start_from_limits_the_run():
    x = tt.dvector("x")
    shared = Step(2)(x)
    fgraph = graph_of([x], tt.exp(shared), tt.sin(Step(3)(shared)), Step(4)(x))
    topo = TopoRewriter([count_down], max_use_ratio=100)
    topo.apply(fgraph, start_from=fgraph.outputs[:1])
    assert ops(fgraph).count(Step(0)) == 1
    assert Step(3) in ops(fgraph)
    assert Step(4) in ops(fgraph)
    assert topo.result.converged


# -- its reports


def test_results_are_collected_in_order():
    x = tt.dvector("x")
    with collect() as outer:
        run(graph_of([x], Step(1)(x)), count_down, name="first", max_use_ratio=9)
        with collect() as inner:
            run(graph_of([x], Step(2)(x)), count_down, name="second", max_use_ratio=9)
        run(graph_of([x], Step(3)(x)), count_down, name="third", max_use_ratio=9)
    run(graph_of([x], Step(4)(x)), count_down, name="fourth", max_use_ratio=9)
    assert [result.name for result in outer] == ["first", "second", "third"]
    assert [result.name for result in inner] == ["second"]
    assert [result.applications for result in outer] == [1, 2, 3]


def test_collecting_nests_before_anything_was_collected():
    """Two empty lists of results are equal, but must not be confused when `collect` ends."""
    x = tt.dvector("x")
    with collect() as outer:
        with collect() as inner:
            pass
        run(graph_of([x], Step(1)(x)), count_down, max_use_ratio=9)
    assert len(outer) == 1
    assert inner == []


def test_figures():
    x = tt.dvector("x")
    fgraph = graph_of([x], tt.exp(Step(2)(x)))
    result = run(fgraph, count_down, name="figures", max_use_ratio=9)
    (rule,) = result.rules
    assert (result.nodes_before, result.nodes_after) == (2, 2)
    assert (rule.name, rule.applications, rule.nodes_made) == ("count_down", 2, 2)
    assert result.attempts == rule.attempts >= 3
    assert result.visits >= 4
    assert result.seconds >= rule.seconds >= 0
    assert str(result).startswith("figures: converged")
    twice = result + result
    assert twice.applications == 4
    assert twice.nodes_before == 4
    assert twice.converged
    assert [r.name for r in twice.rules] == ["count_down"]


def test_unknown_kinds_of_graphs_pass_unharmed():
    """A graph without nodes is unchanged, and counts as converged."""
    x = tt.dvector("x")
    result = run(graph_of([x], x))
    assert result.converged
    assert (result.nodes_before, result.visits) == (0, 0)


@pytest.mark.parametrize("trace", [False, True])
def test_trace_prints_each_rewrite(trace, capsys):
    x = tt.dvector("x")
    with theano.change_flags(**{"optdb.trace": trace}):
        run(graph_of([x], tt.exp(Step(2)(x))), count_down, name="phase", max_use_ratio=9)
    printed = capsys.readouterr().err.splitlines()
    if not trace:
        assert printed == []
        return
    assert printed[:2] == [
        "phase count_down Step{number=2}(x) -> Step{number=1}(x)",
        "phase count_down Step{number=1}(x) -> Step{number=0}(x)",
    ]
    assert printed[2].startswith("phase: converged")
    assert len(printed) == 3


def test_a_phase_without_a_name_is_traced(capsys):
    x = tt.dvector("x")
    with theano.change_flags(**{"optdb.trace": True}):
        run(graph_of([x], tt.exp(Step(1)(x))), count_down, max_use_ratio=9)
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("(unnamed) count_down Step{number=1}(x) ->")
    assert last.startswith("(unnamed): converged")


def test_trace_shows_folded_constants(capsys):
    x = tt.dvector("x")
    fgraph = graph_of([x], tt.as_tensor_variable(np.float64(2)) * 3 + x)
    with theano.change_flags(**{"optdb.trace": True}):
        run(fgraph, final_rewriters=[topo_constant_folding], name="folding")
    assert "folding constant_folding Elemwise{mul,no_inplace}(TensorConstant{2.0}, TensorConstant{3}) ->" in (
        capsys.readouterr().err
    )


def test_values_stay_the_same_over_a_chain():
    x = tt.dvector("x")
    y = Step(3)(tt.exp(x))
    plain = theano.function([x], y, mode=PLAIN)
    fgraph = graph_of([x], y)
    run(fgraph, count_down, max_use_ratio=9)
    chained = theano.function(fgraph.inputs, fgraph.outputs[0], mode=PLAIN)
    value = np.arange(3.0)
    np.testing.assert_array_equal(plain(value), chained(value))
