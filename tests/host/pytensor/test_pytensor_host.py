"""PyTensor's side of the vocabulary: the destroy handler, what rewriters read, and the guards."""

from __future__ import annotations

import pickle
from typing import ClassVar

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.destroyhandler import DestroyHandler
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


def test_factors_and_divisors_are_those_that_pytensor_finds():
    x, y, z = pt.vectors("x", "y", "z")
    w = pt.scalar("w")
    for out in (x * y / z, x / (y / z), x * w, (x + y) * z / (x * y), pt.reciprocal(x) * y, -x + y - (z - w), x):
        for canonizer in (stock.local_mul_canonizer, stock.local_add_canonizer):
            found = canonizer.get_num_denum(out)
            assert found == type(canonizer).get_num_denum.__wrapped__(canonizer, out)


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


def test_assumptions_are_those_that_pytensor_infers():
    from pytensor.assumptions import core

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
    ]
    for key in core.ALL_KEYS:
        ours = [key.holds(var) for var in variables]
        with pytest.MonkeyPatch.context() as patch:
            [ours_patch] = [p for p in _patches() if p.name == "_compute"]
            patch.setattr(core.AssumptionFeature, "_compute", _stock_value(ours_patch))
            assert ours == [key.holds(var) for var in variables], key


def _patches():
    from optdb.pytensor import rewriting

    return rewriting.patches.patches


def _stock_value(patch):
    from optdb.host.api import patching

    return patching._stacks[id(patch.owner), patch.name].original


def test_equal_nodes_are_merged_once():
    from pytensor.graph.rewriting.basic import MergeOptimizer

    x = pt.vector("x")
    fgraph = FunctionGraph([x], [pt.exp(x) + 1, pt.exp(x) + 1, pt.tanh(x)], clone=False)
    MergeOptimizer().rewrite(fgraph)
    assert fgraph.outputs[0] is fgraph.outputs[1]
    assert sum(node.op == pt.exp for node in fgraph.apply_nodes) == 1
