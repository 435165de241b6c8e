"""The host interface for PyTensor includes the destroy handler, facts about rewriters, and guards."""

from __future__ import annotations

import pickle
from typing import ClassVar

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.assumptions.specify import assume
from pytensor.graph.basic import Apply
from pytensor.graph.destroyhandler import DestroyHandler
from pytensor.graph.features import Feature
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.utils import InconsistencyError
from pytensor.tensor.rewriting import math as stock
from pytensor.tensor.shape import specify_shape

import optdb.pytensor


@pytest.fixture(autouse=True)
def enabled():
    with optdb.pytensor.enable():
        yield


class Overwrite(Op):
    """An op that overwrites its first input."""

    __props__ = ()
    destroy_map: ClassVar = {0: [0]}

    def make_node(self, *inputs):
        return Apply(self, list(inputs), [inputs[0].type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0]


class View(Op):
    """An op whose result is a view of its input."""

    __props__ = ()
    view_map: ClassVar = {0: [0]}

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0]


overwrite, view = Overwrite(), View()


def graph(inputs, outputs):
    fgraph = FunctionGraph(inputs, outputs, clone=False)
    fgraph.attach_feature(DestroyHandler())
    return fgraph


def test_the_incremental_handler_is_used():
    from optdb.topo.destroyer import IncrementalDestroyHandler

    assert isinstance(graph([], [pt.constant(1.0)]).destroy_handler, IncrementalDestroyHandler)


def test_two_destroyers_of_one_array_are_refused():
    x = pt.vector("x")
    fgraph = graph([x], [overwrite(x), pt.exp(x)])
    with pytest.raises(InconsistencyError, match="Multiple destroyers"):
        fgraph.replace_all_validate([(fgraph.outputs[1], overwrite(view(x)))])
    assert isinstance(fgraph.outputs[1].owner.op, type(pt.exp))
    fgraph.validate()


def test_a_cycle_through_a_destroyer_is_refused():
    x = pt.vector("x")
    first = pt.exp(x)
    fgraph = graph([x], [overwrite(first), pt.tanh(first)])
    fgraph.validate()
    with pytest.raises(InconsistencyError, match="cycles"):
        fgraph.replace_all_validate([(fgraph.outputs[1], pt.add(first, fgraph.outputs[0]))])


def test_readers_run_before_the_destroyer():
    x = pt.vector("x")
    first = pt.exp(x)
    fgraph = graph([x], [overwrite(first), pt.tanh(view(first))])
    order = [node.op for node in fgraph.toposort()]
    assert order.index(overwrite) == len(order) - 1
    assert fgraph.has_destroyers([first])
    assert fgraph.destroyers(first) == [fgraph.outputs[0].owner]
    assert not fgraph.has_destroyers([fgraph.outputs[1]])


def test_a_constant_is_not_overwritten():
    fgraph = graph([], [overwrite(pt.constant(np.ones(3)))])
    with pytest.raises(InconsistencyError, match="indestructible"):
        fgraph.validate()


def test_the_handler_pickles_as_pytensors_own():
    x = pt.vector("x")
    fgraph = graph([x], [overwrite(pt.exp(x))])
    again = pickle.loads(pickle.dumps(fgraph))
    assert type(again.destroy_handler) is DestroyHandler
    assert again.has_destroyers([again.outputs[0].owner.inputs[0]])
    again.validate()


def test_a_handler_is_cloned_with_its_graph():
    x = pt.vector("x")
    copy = graph([x], [overwrite(pt.exp(x))]).clone()
    copy.attach_feature(DestroyHandler())
    copy.validate()


def test_refusals_last_where_the_graph_was_not_read():
    from optdb.host.pytensor.reads import LASTING, ReadsOfGraph

    x = pt.vector("x")
    fgraph = FunctionGraph([x], [pt.exp(x)], clone=False)
    [node] = fgraph.apply_nodes
    reads = ReadsOfGraph(fgraph)
    assert isinstance(reads, FunctionGraph)
    assert reads.observed(lambda fgraph, node: False)(node) is LASTING
    assert reads.observed(lambda fgraph, node: None)(node) is LASTING
    assert reads.observed(lambda fgraph, node: not fgraph.clients)(node) is None
    assert reads.observed(lambda fgraph, node: getattr(fgraph, "no_feature", None))(node) is None
    assert reads.observed(lambda fgraph, node: node not in fgraph)(node) is None
    assert reads.observed(lambda fgraph, node: [x])(node) == [x]
    reads.mark = 1
    assert fgraph.mark == 1


def terms_of(variables, numbers):
    x, y, z = variables
    return [([x, y], []), ([numbers, x], [z]), ([y], [x, z]), ([numbers], []), ([z, numbers, numbers], [y])]


@pytest.mark.parametrize("number", [2.0, 1.0, 0.5, 0.0, -1.0])
def test_the_guard_refuses_only_what_pytensor_refuses(number):
    from optdb.host.pytensor.distribution import may_save

    variables = [pt.vector(name, dtype="float64") for name in "xyz"]
    c = pt.constant(np.asarray([number]))
    terms = terms_of(variables, c)
    candidates = [*variables, c, pt.abs(variables[0]), pt.constant(np.asarray([2.0]))]
    refused = 0
    distribute = stock.distribute_greedy.__wrapped__
    for count in range(1, len(terms) + 1):
        for start in range(len(terms) - count + 1):
            pairs = terms[start : start + count]
            for candidate in candidates:
                for num, denum in (([candidate], []), ([], [candidate])):
                    with np.errstate(all="ignore"):
                        changed, *_ = distribute(pairs, [], num, denum, variables[0].type)
                    allowed = may_save(pairs, num, denum, variables[0].type)
                    assert allowed or not changed
                    refused += not allowed
    assert refused > 10


def products():
    """Return products and quotients with sums as factors; PyTensor distributes some of them."""
    x, y, z = (pt.vector(name, dtype="float64") for name in "xyz")
    c = pt.constant(np.asarray([2.0]))
    sums = [x / y + z, x * y + z / y, x / 2 + y / 2, x + y, x / pt.abs(x) + y, -x / y - z / y, x * 0 + y]
    factors = [x, y, c, pt.reciprocal(y), 1 / c, pt.abs(x)]
    return [a * b for a in sums for b in (*factors, *sums)] + [a / b for a in sums for b in (*factors, *sums)]


def test_products_that_pytensor_distributes_are_tried():
    from optdb.host.pytensor.distribution import Distributions

    outputs = products()
    fgraph = FunctionGraph(outputs=outputs, clone=False)
    kept = Distributions()
    refused = changed = 0
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(stock, "distribute_greedy", stock.distribute_greedy.__wrapped__)
        for out in outputs:
            may_apply = kept.may_apply(out.owner)
            applies = bool(stock.local_greedy_distributor.fn(fgraph, out.owner))
            assert may_apply or not applies
            refused += not may_apply
            changed += applies
    assert refused > 20 and changed > 10


def test_a_sum_is_counted_again_where_its_terms_change():
    from optdb.host.pytensor.distribution import Distributions

    x, y, z = (pt.vector(name, dtype="float64") for name in "xyz")
    term = x * z
    out = (term + z) * y
    fgraph = FunctionGraph([x, y, z], [out], clone=False)
    kept = Distributions()
    assert not kept.may_apply(out.owner)
    fgraph.replace(term, x / y)
    assert kept.may_apply(out.owner)


def test_factors_and_divisors_are_those_that_pytensor_finds():
    x, y, z = pt.vectors("x", "y", "z")
    w = pt.scalar("w")
    for out in (x * y / z, x / (y / z), x * w, (x + y) * z / (x * y), pt.reciprocal(x) * y, -x + y - (z - w), x):
        for canonizer in (stock.local_mul_canonizer, stock.local_add_canonizer):
            found = canonizer.get_num_denum(out)
            assert found == type(canonizer).get_num_denum.__wrapped__(canonizer, out)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_numbers_are_put_together_as_pytensor_does(dtype):
    x, y = (pt.vector(name, dtype=dtype) for name in "xy")
    one, two, none = (pt.constant(np.asarray([number], dtype=dtype)) for number in (1, 2, 0))
    other = pt.constant(np.asarray([2], dtype="int8"))
    lists = [[two, x], [x, two], [two], [one, x], [none, x], [two, two, x], [two, none, x], [other, x], [x], []]
    for canonizer in (stock.local_mul_canonizer, stock.local_add_canonizer):
        simplify = type(canonizer).simplify_constants
        for num in lists:
            for denum in ([], [y], [two], [y, two]):
                with np.errstate(all="ignore"):
                    ours = simplify(canonizer, list(num), list(denum), x.type)
                    theirs = simplify.__wrapped__(canonizer, list(num), list(denum), x.type)
                for own, their in zip(ours, theirs, strict=True):
                    assert [var.type for var in own] == [var.type for var in their]
                    assert all(a is b or a.data == b.data for a, b in zip(own, their, strict=True))


def test_new_nodes_are_found_in_pytensors_order():
    from pytensor.graph import fg
    from pytensor.graph.traversal import toposort

    x, y = pt.vectors("x", "y")
    known = x + y
    out = pt.exp(known) * pt.tanh(known + x) + (known - y) * known
    graphs = [out, pt.exp(out)]
    for blockers in (None, set(), {known}, [known], {x, y, known}):
        assert list(fg.toposort(graphs, blockers)) == list(toposort(graphs, blockers))


def test_constants_are_found_as_pytensor_finds_them():
    from pytensor.tensor import basic
    from pytensor.tensor.basic import NotScalarConstantError

    x = pt.matrix("x")
    two = pt.as_tensor_variable(2.0)
    expressions = [
        *(
            two,
            two + 3,
            pt.fill(x, two),
            x + two,
            x.sum(),
            (two * 3).dimshuffle("x", "x"),
            x.dimshuffle(1, 0),
            pt.exp(two),
        ),
        *(pt.alloc(two, 3, 2), x.dot(x), x.shape[0], specify_shape(x, (3, 4)).shape[0], pt.where(two > 1, two, 3.0)),
        *(pt.maximum(two, 3), pt.cast(two, "float32"), x[0, 0], pt.stack([two, two])[0], pt.fill(two, x[0, 0])),
    ]

    def value(find, var):
        try:
            return find(var)
        except NotScalarConstantError:
            return None

    find = basic._get_underlying_scalar_constant_value
    for var in expressions:
        assert value(find, var) == value(find.__wrapped__, var), var


def test_static_shapes_are_inferred_as_pytensor_infers_them():
    from pytensor.tensor import basic

    x, y = pt.matrix("x"), pt.tensor("y", shape=(None, 4))
    z = specify_shape(x, (3, None))
    lengths = [
        *(x.shape[0], y.shape[1], y.shape[0], z.shape[0], (z + x).shape[0], x.dot(y).shape[1], x.dot(y).shape[0]),
        *(pt.exp(x).T.shape[1], x.sum(axis=0).shape[0], x[0].shape[0], pt.alloc(0.0, x.shape[0], 3).shape[0]),
        *(pt.alloc(0.0, 5, x.shape[0]).shape[0], x.dimshuffle("x", 0, 1).shape[0], pt.concatenate([y, y]).shape[0]),
        *(3, pt.constant(3), x.shape[0] * 2, pt.zeros((z.shape[0], 2)).shape[0], x.shape[-1]),
    ]
    infer = basic.infer_static_shape
    for length in lengths:
        assert infer([length])[1] == infer.__wrapped__([length])[1], length


def stock_feature(fgraph):
    """Return PyTensor's own AssumptionFeature, which has received no events yet."""
    from pytensor.assumptions.core import AssumptionFeature

    feature = AssumptionFeature()
    AssumptionFeature.on_attach.__wrapped__(feature, FunctionGraph(outputs=[pt.constant(1.0)], clone=False))
    feature.fgraph = fgraph
    return feature


def test_assumptions_are_those_that_pytensor_infers():
    from pytensor.assumptions import core

    from optdb.host.pytensor.assumptions import LeanAssumptions

    x = pt.matrix("x")
    lower = pt.linalg.cholesky(x)
    variables = [
        x,
        x + x.T,
        x @ x.T,
        pt.diag(x[0]),
        pt.eye(3),
        lower,
        lower @ lower.T,
        pt.linalg.inv(pt.eye(3) * 2),
        lower.T,
        assume(x, diagonal=True) @ lower,
        assume(x, symmetric=False),
        pt.linalg.solve(pt.exp(x), x[0], assume_a="pos"),
    ]
    fgraph = FunctionGraph(outputs=variables, clone=False)
    fgraph.attach_feature(core.AssumptionFeature())
    assert type(fgraph.assumption_feature) is LeanAssumptions
    stock_answers = stock_feature(fgraph)
    for key in core.ALL_KEYS:
        for var in fgraph.variables:
            assert fgraph.assumption_feature.get(var, key) is stock_answers.get(var, key), (var, key)


class Forwarding(Feature):
    """A feature that forwards the events of a graph to a feature that is not attached."""

    def __init__(self, other):
        self.other = other

    def on_change_input(self, *args, **options):
        self.other.on_change_input(*args, **options)

    def on_prune(self, *args, **options):
        self.other.on_prune(*args, **options)


@pytest.mark.parametrize("queries", [1, 7])
@pytest.mark.parametrize("seed", range(4))
def test_assumptions_follow_changes(queries, seed):
    from pytensor.assumptions import core

    x, scale = pt.matrix("x"), pt.scalar("scale")
    fgraph = FunctionGraph([x, scale], [scale * x @ pt.eye(3), (x @ x.T).T, pt.exp(x) + pt.tanh(x)], clone=False)
    fgraph.attach_feature(core.AssumptionFeature())
    theirs = stock_feature(fgraph)
    fgraph.attach_feature(Forwarding(theirs))
    rng = np.random.default_rng(seed)
    news = [lambda: pt.eye(3), lambda: pt.diag(x[0]), lambda: x.T, lambda: x @ x.T, lambda: scale * x]
    for _ in range(8):
        nodes = [node for node in fgraph.toposort() if node.outputs[0].type.ndim == 2]
        for _ in range(queries):
            var = nodes[rng.integers(len(nodes))].outputs[0]
            key = core.MATRIX_KEYS[rng.integers(len(core.MATRIX_KEYS))]
            assert fgraph.assumption_feature.get(var, key) is theirs.get(var, key), (var, key)
        node = nodes[rng.integers(len(nodes))]
        slots = [slot for slot, inp in enumerate(node.inputs) if inp.type.ndim == 2]
        new = news[rng.integers(len(news))]()
        if slots and node.inputs[slots[0]].type.is_super(new.type):
            fgraph.change_node_input(node, slots[0], new)


def test_conflicting_assumptions_raise_an_error():
    from pytensor.assumptions import core

    x = pt.matrix("x")
    diagonal, other = assume(x, diagonal=True), assume(pt.exp(x), diagonal=False)
    fgraph = FunctionGraph([x], [pt.tanh(diagonal), other], clone=False)
    fgraph.attach_feature(core.AssumptionFeature())
    for var in (diagonal, other):
        fgraph.assumption_feature.get(var, core.DIAGONAL)
    fgraph.replace(diagonal, other)
    with pytest.raises(core.ConflictingAssumptionsError, match="diagonal"):
        fgraph.assumption_feature.get(other, core.DIAGONAL)


def test_equal_nodes_are_merged_once():
    from pytensor.graph.rewriting.basic import MergeOptimizer

    x = pt.vector("x")
    fgraph = FunctionGraph([x], [pt.exp(x) + 1, pt.exp(x) + 1, pt.tanh(x)], clone=False)
    MergeOptimizer().rewrite(fgraph)
    assert fgraph.outputs[0] is fgraph.outputs[1]
    assert sum(node.op == pt.exp for node in fgraph.apply_nodes) == 1
