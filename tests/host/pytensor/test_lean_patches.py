"""The faster versions of PyTensor's functions return the same as PyTensor's own functions."""

from __future__ import annotations

import gc
import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import config, scalar
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import (
    FromFunctionNodeRewriter,
    MergeOptimizer,
    SequentialNodeRewriter,
    WalkingGraphRewriter,
    node_rewriter,
)
from pytensor.graph.rewriting.unify import OpPattern
from pytensor.graph.utils import MetaObject, MetaType, Scratchpad
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.rewriting import math as stock
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant, TensorConstantSignature, TensorVariable

import optdb.pytensor
from optdb.host.pytensor import lean


@pytest.fixture(autouse=True)
def enabled():
    with optdb.pytensor.enable():
        yield


# -- instances


def test_inheritance_decides_what_an_instance_is():
    x, two = pt.vector("x"), pt.constant(2.0)
    assert vars(MetaType)["__instancecheck__"] is type.__instancecheck__
    assert isinstance(pt.exp, Elemwise) and isinstance(pt.exp, Op) and isinstance(two, Constant | Op)
    assert isinstance(x, TensorVariable) and not isinstance(x, TensorConstant)
    assert not isinstance("x", Op) and not isinstance(Op, Op)


@pytest.mark.usefixtures("alone")
def test_virtual_subclasses_are_instances():
    class Declared(MetaObject):
        pass

    Declared.register(int)
    assert isinstance(3, Declared)
    with optdb.pytensor.enable():  # as long as there are virtual subclasses, PyTensor's own `isinstance` is used
        assert isinstance(3, Declared)
    optdb.pytensor.disable()
    optdb.pytensor.enable()
    assert isinstance(3, Declared)
    optdb.pytensor.disable()
    del Declared
    gc.collect()
    optdb.pytensor.enable()


def test_nodes_ops_and_types_are_equal_as_without_patches():
    x, y = pt.vector("x"), pt.matrix("y")
    nodes = [pt.exp(x).owner, pt.exp(x).owner, pt.exp(y).owner]
    things = [*nodes, x, y, *[node.op for node in nodes], pt.tanh, pt.neg, x.type, y.type, pt.constant(1), "x", None]
    ours = [(a == b, a != b) for a in things for b in things]
    optdb.pytensor.disable()
    assert ours == [(a == b, a != b) for a in things for b in things]
    optdb.pytensor.enable()


def test_tags_keep_their_attributes():
    tag = pt.vector("x").tag
    tag.test_value = 3
    assert tag.test_value == 3 and vars(tag)["test_value"] == 3 and not hasattr(tag, "other")
    copied = pickle.loads(pickle.dumps(tag))
    optdb.pytensor.disable()
    assert copied.test_value == tag.test_value == 3
    optdb.pytensor.enable()


# -- constants


def test_signatures_of_numbers_are_equal_and_hash_as_pytensors():
    numbers = [0.0, -0.0, 1.0, 2.5, np.nan, np.inf, -np.inf, 1, 0, 3, True, False, [1.0], [[2.5]], [1.0, 2.0], 1 + 2j]
    dtypes = [None, "float32", "int8"]
    arrays = [np.asarray(number, dtype=dtype) for number in numbers for dtype in dtypes if _fits(number, dtype)]
    constants = [pt.constant(array) for array in arrays]

    def stock_signatures():
        with np.errstate(all="ignore"):
            optdb.pytensor.disable()
            found = [constant.signature() for constant in constants]
            equal = [[a == b for b in found] for a in found]
            hashes = list(map(hash, found))
            optdb.pytensor.enable()
        return equal, hashes

    equal, hashes = stock_signatures()
    ours = [constant.signature() for constant in constants]
    assert [[bool(a == b) for b in ours] for a in ours] == [[bool(value) for value in row] for row in equal]
    assert list(map(hash, ours)) == hashes
    assert TensorConstantSignature((constants[0].type, arrays[0])) != "another class"


def _fits(number, dtype):
    return dtype is None or np.can_cast(np.asarray(number).dtype, dtype, "same_kind")


@pytest.mark.parametrize("depth", range(7, 14))
def test_values_are_searched_as_deep_as_pytensor_searches(depth):
    from pytensor.tensor import basic
    from pytensor.tensor.basic import NotScalarConstantError

    find = basic._get_underlying_scalar_constant_value

    def value(find, *args, **kwargs):
        try:
            return float(find(*args, **kwargs))
        except NotScalarConstantError:
            return None

    deep = pt.as_tensor_variable(2.0)
    for _ in range(depth):
        deep = deep + 1.0
    for options in ({}, {"max_recur": 3}, {"max_recur": 20}, {"only_process_constants": True}, {"elemwise": False}):
        for var in (deep, deep * pt.scalar("x"), pt.add(*[pt.constant(1.0)] * 12, deep), pt.constant(3.0)):
            assert value(find, var, **options) == value(find.__wrapped__, var, **options), options


# -- guards and canonizers


def _truth(value):
    return pt.constant(np.asarray([value]), dtype="bool")


def candidates():
    """Return expressions, some of which guarded rewriters change."""
    x, y, z = (pt.vector(name, dtype="float64") for name in "xyz")
    one, zero, minus, two = (pt.constant(np.asarray([number])) for number in (1.0, 0.0, -1.0, 2.0))
    flag = pt.vector("flag", dtype="bool")
    filled = pt.alloc(2.0, x.shape[0])
    switched = [pt.where(flag, x, 0.0), pt.where(flag, x, y), pt.where(flag, y, z)]
    written = [pt.zeros_like(x)[:2].inc(y[:2]), pt.zeros(5)[1:3].set(z[:2]), pt.inc_subtensor(x[:1], 1.0)]
    odd = [one, zero, minus, two, filled, -x, abs(x), abs(y), pt.exp(x), pt.exp(y), x**y, x**z, *switched, *written, x]
    unary = [pt.exp(filled), pt.sqrt(filled), pt.add(x), pt.mul(x), pt.identity(x), pt.neg(x)]
    pairs = [op(a, b) for op in (pt.mul, pt.add, pt.sub, pt.true_div) for a in odd for b in odd]
    compared = [
        op(a, b) for op in (pt.eq, pt.neq, pt.lt, pt.ge, pt.maximum, pt.minimum) for a in (x, y) for b in (x, y)
    ]
    logical = [op(flag, b) for op in (pt.and_, pt.or_, pt.xor) for b in (flag, *map(_truth, (True, False)))]
    lengths = [pt.lt(x.shape[0], 0), pt.maximum(x.shape[0], 0), pt.eq(x.shape[0], -1)]
    longer = [pt.mul(a, b, y) for a in odd for b in odd[:8]] + [pt.add(a, b, y) for a in odd for b in odd[:8]]
    base = pt.zeros_like(x)
    once = [pt.second(x, y) * z, pt.add(base[:2].inc(y[:2]), base[2:].inc(z[2:]))]
    return [
        *once,
        *unary,
        *pairs,
        *compared,
        *logical,
        *lengths,
        *longer,
        (x * y) / x,
        x / abs(x),
        (x + y) - x,
        (x * y) * z,
    ]


def test_guards_refuse_only_what_the_rewriters_decline():
    from optdb.host.api.facts import facts_of
    from optdb.host.pytensor.guards import GUARDS, TRACKS

    fgraph = FunctionGraph(outputs=candidates(), clone=False)
    for rewriter in {*GUARDS, *TRACKS}:
        facts = facts_of(rewriter)
        refused = changed = 0
        for node in fgraph.toposort():
            if isinstance(node.op, Elemwise):
                may_apply = facts.may_apply(node.op) and (facts.guard is None or facts.guard(node))
                applies = bool(rewriter.transform(fgraph, node))
                assert may_apply or not applies, (rewriter, node)
                refused += not may_apply
                changed += applies
        assert refused > 10 and changed, rewriter


@pytest.mark.parametrize("name", ["local_mul_canonizer", "local_add_canonizer"])
def test_canonizers_decline_what_pytensors_decline(name):
    canonizer = getattr(stock, name)
    transform = type(canonizer).transform
    fgraph = FunctionGraph(outputs=candidates(), clone=False)
    declined = changed = 0
    with np.errstate(all="ignore"):
        for node in fgraph.toposort():
            ours = transform(canonizer, fgraph, node)
            theirs = transform.__wrapped__(canonizer, fgraph, node)
            assert bool(ours) == bool(theirs), node
            declined += not ours
            changed += bool(ours)
    assert declined > 50 and changed > 50


def test_a_product_is_counted_again_where_it_changes_deep_within_a_sum():
    from optdb.host.pytensor.distribution import Distributions

    x, y, z, w = (pt.vector(name, dtype="float64") for name in "xyzw")
    inner = w * z
    out = pt.add(x * inner, y * z) * y
    fgraph = FunctionGraph([x, y, z, w], [out], clone=False)
    kept = Distributions()
    assert not kept.may_apply(out.owner)
    fgraph.replace(inner, w / y)
    assert kept.may_apply(out.owner)


# -- types, scalar ops, names


def test_types_are_those_that_pytensor_makes():
    init = TensorType.__init__.__wrapped__
    for shape in ((), (1,), (True,), (0,), (False,), (None, 3), [None, 3], [True, False], (np.int64(3),), 3, (3,) * 2):
        for dtype in ("float64", "float32", "floatX", "int8", np.float32, "bool"):
            for name in (None, "named"):
                expected = TensorType.__new__(TensorType)
                init(expected, dtype, shape, name)
                for _ in range(2):
                    made = TensorType(dtype, shape, name)
                    assert vars(made) == vars(expected)
                    assert list(map(type, made.shape)) == list(map(type, expected.shape))
    with pytest.raises(TypeError, match="Invalid dtype"):
        TensorType("no dtype", ())
    with pytest.raises(TypeError, match="requires a `shape`"):
        TensorType("float64")


def test_c_code_is_generated_once():
    calls = []

    class Counted(scalar.UnaryScalarOp):
        def c_code(self, node, name, inputs, outputs, sub):
            calls.append(node.inputs[0].type.dtype)
            if node.inputs[0].type.dtype == "float32":
                raise NotImplementedError
            return ""

    op = Counted(scalar.same_out)
    single, double = pt.vector("single", dtype="float32"), pt.vector("double", dtype="float64")
    for _ in range(2):
        assert op.supports_c_code([double], [double])
        assert not op.supports_c_code([single], [single])
    assert calls == ["float64", "float32"]


def test_rewriters_have_pytensors_names():
    @node_rewriter([pt.exp])
    def named(fgraph, node):
        return None

    for rewriter in (named, FromFunctionNodeRewriter(named.fn), stock.local_mul_canonizer, stock.local_add_canonizer):
        assert str(rewriter) == type(rewriter).__str__.__wrapped__(rewriter)


# -- merges and passes


def test_a_node_that_becomes_equal_to_another_is_merged():
    x, y = pt.vectors("x", "y")
    users = [pt.exp(x) + k for k in range(12)]  # the new variable and the inputs have many users
    first, second = x * y, y * y
    fgraph = FunctionGraph([x, y], [first, second, *users], clone=False)
    MergeOptimizer().rewrite(fgraph)
    fgraph.change_node_input(second.owner, 0, x)
    MergeOptimizer().rewrite(fgraph)
    assert fgraph.outputs[0] is fgraph.outputs[1]


def visiting(order, ignore_newtrees, rewriter):
    return WalkingGraphRewriter(rewriter, order=order, ignore_newtrees=ignore_newtrees)


@pytest.mark.parametrize("order", ["in_to_out", "out_to_in"])
@pytest.mark.parametrize("ignore_newtrees", [False, True])
@pytest.mark.parametrize("in_sequence", [False, True])
def test_passes_visit_the_nodes_that_pytensor_visits(order, ignore_newtrees, in_sequence):
    seen = []

    @node_rewriter([pt.exp, Elemwise])
    def halves(fgraph, node):
        seen.append(str(node.op))
        if node.op == pt.exp and not node.inputs[0].owner:
            return [pt.exp(pt.tanh(node.inputs[0])) + 1]
        return None

    rewriter = SequentialNodeRewriter(halves) if in_sequence else halves
    results = []
    for apply in (WalkingGraphRewriter.apply, WalkingGraphRewriter.apply.__wrapped__):
        seen.clear()
        x = pt.vector("x")
        fgraph = FunctionGraph([x], [pt.exp(x).sum(), pt.tanh(x) * 2, pt.dot(x, x)], clone=False)
        fgraph.attach_feature(_replacing())
        result = apply(visiting(order, ignore_newtrees, rewriter), fgraph)
        results.append((list(seen), result[1:4], list(map(str, fgraph.toposort()))))
    assert results[0] == results[1]


def _replacing():
    from pytensor.graph.features import ReplaceValidate

    return ReplaceValidate()


def test_a_pass_that_tracks_no_op_of_the_graph_visits_nothing():
    @node_rewriter([pt.tanh])
    def never(fgraph, node):
        raise AssertionError("not reached")

    x = pt.vector("x")
    fgraph = FunctionGraph([x], [pt.exp(x)], clone=False)
    assert WalkingGraphRewriter(never).apply(fgraph)[1:4] == (0, 1, 1)
    assert isinstance(next(iter(fgraph.apply_nodes)), Apply)


def test_passes_compare_the_parameters_of_tracked_ops():
    seen = []

    @node_rewriter([OpPattern(Sum, axis=(0,))])
    def noting(fgraph, node):
        seen.append(node.op.axis)

    y = pt.matrix("y")
    fgraph = FunctionGraph([y], [y.sum(axis=0), y.sum(axis=1)], clone=False)
    WalkingGraphRewriter(noting).apply(fgraph)
    assert seen == [(0,)]


def test_passes_sort_a_graph_again_after_a_change():
    seen = []

    @node_rewriter([Elemwise])
    def noting(fgraph, node):
        seen.append(str(node.op))

    x = pt.vector("x")
    fgraph = FunctionGraph([x], [pt.exp(pt.tanh(x)), pt.sqr(x)], clone=False)
    walk = WalkingGraphRewriter(noting)
    for change in (lambda: None, lambda: fgraph.replace(fgraph.outputs[0], pt.cos(x)), lambda: fgraph.remove_output(1)):
        change()
        for _ in range(2):
            seen.clear()
            walk.apply(fgraph)
            assert seen == [str(node.op) for node in fgraph.toposort()]
    assert not vars(pickle.loads(pickle.dumps(fgraph))).get("_optdb_order")


# -- stack traces


class Tagged:
    def __init__(self):
        self.tag = Scratchpad()


def traced_by(function, *args):
    return function(Tagged(), *args).tag.trace


@pytest.mark.parametrize("limit", [None, -1, -2, 0, 1, 2, 8, 1000])
@pytest.mark.parametrize("flag", [-1, 0, 8])
def test_traces_are_pytensors(limit, flag):
    def deep(levels):
        if levels:
            return deep(levels - 1)
        return [traced_by(function, limit) for function in (lean._stock_add_tag_trace, lean._add_tag_trace)]

    with config.change_flags(traceback__limit=flag):
        for levels in (0, 20):
            stock, ours = deep(levels)
            assert ours == stock


def test_variables_are_traced_as_by_pytensor():
    def traced():
        x = pt.dvector()
        shared = pytensor.shared(np.ones(3))
        variables = [x, shared, (x + shared).sum(), pt.grad(pt.exp(x).sum(), x), pt.exp(x)]
        return [
            [entry for entry in trace if entry[2] != "test_variables_are_traced_as_by_pytensor"]
            for variable in variables
            for trace in variable.tag.trace
        ]

    ours = traced()
    with optdb.pytensor.enable():
        optdb.pytensor.disable()
        stock = traced()
        optdb.pytensor.enable()
    assert ours == stock and len(ours) == 5 and all(ours)
