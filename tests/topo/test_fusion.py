"""Fused groups are at least as large as Theano's final groups, and fusion changes no values."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given
from hypothesis import strategies as st
from theano.gof import FunctionGraph
from theano.scalar import Composite, UnaryScalarOp, upgrade_to_float
from theano.tensor.elemwise import Elemwise
from theano.tensor.opt import FusionOptimizer, local_add_mul_fusion

import optdb
from optdb.topo.fusion import MAX_RECOMPUTED_PER_GROUP, MAX_RECOMPUTING_GROUPS, GroupFusion
from optdb.topo.translate import translate
from tests.topo.graphs import STOCK

FUSION_ONLY = theano.Mode("py", theano.gof.Query(include=["fusion"], exclude=["inplace"]))


class NoCode(UnaryScalarOp):
    """A scalar op without C code that doubles its input."""

    def impl(self, x):
        return 2 * x

    def c_code(self, node, name, inputs, outputs, sub):
        raise theano.gof.utils.MethodNotDefined


def both(inputs, outputs, mode=FUSION_ONLY):
    stock = theano.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    with optdb.enable():
        ours = theano.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    return stock, ours


def composites(f):
    nodes = f.maker.fgraph.toposort()
    return [n for n in nodes if isinstance(n.op, Elemwise) and isinstance(n.op.scalar_op, Composite)]


X, Y, Z = tt.dmatrix("x"), tt.drow("y"), tt.fmatrix("z")
VALUES = [
    np.array([[0.5, 1.5, 2.0], [0.1, 0.2, 0.9]]),
    np.array([[1.0, 2.0, 3.0]]),
    np.array([[0.25, 0.5, 1.0], [2.0, 3.0, 4.0]], dtype="float32"),
]


@st.composite
def graphs(draw):
    """Draw elementwise ops and sums of earlier values; many values are used more than once; some are outputs."""
    pool = [X, Y, Z]
    unary = [
        tt.exp,
        tt.tanh,
        tt.sqr,
        Elemwise(NoCode(upgrade_to_float, name="no_code")),
        lambda v: v.sum(axis=0, keepdims=True),
    ]
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.integers(0, 7))
        first, second = (draw(st.sampled_from(pool)) for _ in "ab")
        new = unary[kind](first) if kind < 5 else [tt.add, tt.mul, tt.maximum][kind - 5](first, second)
        pool.append(tt.tanh(new) if draw(st.booleans()) else new)
    return draw(st.lists(st.sampled_from(pool[3:]), min_size=1, max_size=3))


@pytest.mark.slow
@given(graphs())
def test_it_fuses_as_much_as_stock(outputs):
    stock, ours = both([X, Y, Z], outputs)
    assert len(ours.maker.fgraph.apply_nodes) <= len(stock.maker.fgraph.apply_nodes)
    for theirs, mine in zip(stock(*VALUES), ours(*VALUES), strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-12)


def test_a_value_used_twice_within_a_group():
    """All ops are fused into one node, as by stock Theano, which needs two passes for this."""
    y = tt.exp(X)
    stock, ours = both([X], y * tt.sin(y))
    assert len(ours.maker.fgraph.apply_nodes) == len(stock.maker.fgraph.apply_nodes) == 1


def test_nothing_expensive_is_computed_twice():
    """A value that two fused groups use is not computed in both of them: it stays a separate node."""
    y = tt.exp(X)
    _, ours = both([X], [tt.sin(y) * 2, tt.cos(y).sum(axis=0)])
    exps = [n for n in ours.maker.fgraph.toposort() if n.op == tt.exp]
    assert len(exps) == 1


def elementwise(f):
    return [n for n in f.maker.fgraph.toposort() if isinstance(n.op, Elemwise)]


def test_a_cheap_node_is_computed_by_each_group_that_uses_it():
    difference = X - 2.5
    _, ours = both([X], [tt.sqr(difference).sum(axis=0), (difference * 4).sum(axis=1)])
    assert len(elementwise(ours)) == 2
    for mine, expected in zip(
        ours(VALUES[0]), [((VALUES[0] - 2.5) ** 2).sum(0), 4 * (VALUES[0] - 2.5).sum(1)], strict=True
    ):
        np.testing.assert_allclose(mine, expected)


def test_what_feeds_a_recomputed_node_alone_is_recomputed_with_it():
    cheap = tt.maximum(X * 2, 1) - 3
    _, ours = both([X], [tt.exp(cheap).sum(axis=0), tt.sin(cheap).sum(axis=1)])
    assert len(elementwise(ours)) == 2


def test_expensive_work_behind_a_recomputed_node_is_done_once():
    cheap = tt.exp(X) - 3
    _, ours = both([X], [tt.sqr(cheap).sum(axis=0), tt.sin(cheap).sum(axis=1)])
    exps = [n for n in elementwise(ours) if n.op == tt.exp]
    assert len(elementwise(ours)) == 3 and len(exps) == 1


@pytest.mark.parametrize(
    "cheap",
    [tt.exp(X) + tt.sin(X), (tt.exp(X) - 3) * tt.maximum(tt.sin(X), 0.5), tt.exp(X) + tt.sin(X) * tt.cos(X) - 2],
    ids=["sum", "cheap operands", "three"],
)
def test_a_node_that_computes_expensive_work_for_itself_alone_is_not_recomputed(cheap):
    stock, ours = both([X], [tt.sqr(cheap).sum(axis=0), (cheap * 4).sum(axis=1)])
    assert len(elementwise(ours)) == len(elementwise(stock)) == 3
    for mine, theirs in zip(ours(VALUES[0]), stock(VALUES[0]), strict=True):
        np.testing.assert_allclose(mine, theirs)


def test_expensive_work_that_others_use_does_not_count():
    exp, sin = tt.exp(X), tt.sin(X)
    cheap = exp + sin
    _, ours = both([X], [exp, sin, tt.sqr(cheap).sum(axis=0), (cheap * 4).sum(axis=1)])
    assert len(elementwise(ours)) == 4


def test_a_cheap_output_is_not_computed_again():
    cheap = X - 2
    _, ours = both([X], [cheap, tt.exp(cheap).sum(axis=0), tt.sin(cheap).sum(axis=1)])
    assert len(elementwise(ours)) == 3


def test_many_groups_share_a_cheap_node():
    cheap = X - 2
    users = [tt.exp(cheap * i).sum(axis=i % 2) for i in range(2, 2 + MAX_RECOMPUTING_GROUPS + 1)]
    _, ours = both([X], users)
    assert len(elementwise(ours)) == len(users) + 1


def test_a_sum_of_many_arrays_is_not_read_by_each_group():
    inputs = [tt.dmatrix() for _ in range(8)]
    total = tt.add(*inputs)
    _, ours = both(inputs, [tt.exp(total).sum(axis=0), tt.sin(total).sum(axis=1)])
    assert len(elementwise(ours)) == 3


def test_a_group_recomputes_so_much_only():
    chain = X
    for i in range(MAX_RECOMPUTED_PER_GROUP + 2):
        chain = tt.maximum(chain - i, 0.5) if i % 2 else chain * 1.5
    _, ours = both([X], [tt.exp(chain).sum(axis=0), tt.sin(chain).sum(axis=1)])
    assert len(elementwise(ours)) == 3
    sizes = sorted(len(n.op.scalar_op.fgraph.apply_nodes) for n in composites(ours))
    assert sizes[-1] == MAX_RECOMPUTED_PER_GROUP + 1


def test_a_cheap_element_joins_a_group_of_arrays():
    one = tt.dscalar("one")
    scaled = (one.dimshuffle("x", "x") - 2) / 3
    _, ours = both([X, one], tt.exp(X) * scaled)
    assert len(elementwise(ours)) == 1
    np.testing.assert_allclose(ours(VALUES[0], 5.0), np.exp(VALUES[0]))


def test_an_expensive_element_is_computed_once():
    one = tt.dscalar("one")
    _, ours = both([X, one], tt.sqr(X) * tt.exp(one.dimshuffle("x", "x")))
    assert len(elementwise(ours)) == 2


def test_no_path_leaves_a_group_and_comes_back():
    y = tt.exp(X)
    out = y * tt.dot(y, X.T).sum()
    _, ours = both([X], out)
    np.testing.assert_allclose(ours(VALUES[0]), np.exp(VALUES[0]) * np.dot(np.exp(VALUES[0]), VALUES[0].T).sum())


def test_no_path_comes_back_through_a_recomputed_node():
    cheap = X + 1
    first = tt.exp(cheap)
    out = tt.sin(cheap) * tt.dot(first, first.T).sum()
    _, ours = both([X], [out, (cheap * 2).sum(axis=0)])
    value = VALUES[0] + 1
    expected = np.sin(value) * np.dot(np.exp(value), np.exp(value).T).sum()
    np.testing.assert_allclose(ours(VALUES[0])[0], expected)


def test_other_broadcast_patterns_stay_out():
    """A value computed from one row is not fused into a matrix expression: it would be computed again for each row."""
    _, ours = both([X, Y], tt.exp(Y) + X * 2)
    assert any(n.op == tt.exp for n in ours.maker.fgraph.toposort())


def test_an_output_is_not_swallowed():
    y = tt.exp(X)
    _, ours = both([X], [y, tt.sin(y)])
    assert len(ours.maker.fgraph.apply_nodes) == 2 and composites(ours) == []


def test_an_op_without_c_code_stays_out():
    no_code = Elemwise(NoCode(upgrade_to_float, name="no_code"))
    stock, ours = both([X], tt.exp(no_code(tt.sin(tt.cos(X)))))
    assert len(ours.maker.fgraph.apply_nodes) == len(stock.maker.fgraph.apply_nodes) == 3
    np.testing.assert_allclose(stock(VALUES[0]), ours(VALUES[0]))


@pytest.mark.slow
def test_the_argument_limit_is_kept():
    """Without a compiler, fused nodes have at most 31 inputs, which is NumPy's limit."""
    inputs = [tt.dvector(f"x{i}") for i in range(70)]
    out = tt.exp(inputs[0])
    for var in inputs[1:]:
        out = tt.tanh(out + var)
    with theano.change_flags(cxx=""):
        stock, ours = both(inputs, out)
    assert max(len(n.inputs) for n in ours.maker.fgraph.apply_nodes) <= 31
    assert len(ours.maker.fgraph.apply_nodes) <= len(stock.maker.fgraph.apply_nodes)
    values = [np.full(2, i / 70) for i in range(70)]
    np.testing.assert_allclose(stock(*values), ours(*values))


def test_groups_of_one_structure_share_their_op():
    parts = [tt.exp(tt.sin(X + i) * 2).sum(axis=i % 2) for i in range(6)]
    _, ours = both([X], parts)
    assert len(composites(ours)) == 6
    assert len({id(n.op) for n in composites(ours)}) == 1


def test_a_composite_in_a_group_is_spelled_out():
    """When a Composite is fused again, the result contains no nested Composite."""
    _, ours = both([X], tt.exp(tt.sin(X)))
    fused = ours.maker.fgraph.outputs[0].owner.op
    _, again = both([X], fused(tt.cos(fused(X))))
    (node,) = composites(again)
    assert not any(isinstance(inner.op, Composite) for inner in node.op.scalar_op.fgraph.toposort())
    np.testing.assert_allclose(again(VALUES[0]), np.exp(np.sin(np.cos(np.exp(np.sin(VALUES[0]))))))


@pytest.mark.parametrize("dtypes", [("float16", "float32"), ("int8", "float64"), ("bool", "int64"), ("uint8", "int8")])
def test_dtypes_are_kept(dtypes):
    a, b = (tt.TensorType(dtype, (False,))() for dtype in dtypes)
    stock, ours = both([a, b], tt.switch(a > b, a * b, -(a + b)))
    assert len(ours.maker.fgraph.apply_nodes) <= len(stock.maker.fgraph.apply_nodes)
    values = [np.array([1, 0, 1], dtype=dtype) for dtype in dtypes]
    theirs, mine = stock(*values), ours(*values)
    assert theirs.dtype == mine.dtype
    np.testing.assert_array_equal(theirs, mine)


@pytest.mark.slow_cases("full")
@pytest.mark.parametrize("value", [np.ones((2, 2)), np.ones((0, 2))], ids=["full", "empty"])
def test_test_values_are_computed(value):
    with theano.change_flags(compute_test_value="raise"):
        x = tt.dmatrix("x")
        x.tag.test_value = value
        _, ours = both([x], tt.exp(tt.sin(x) * 2) + x)
    np.testing.assert_allclose(ours(value), np.exp(np.sin(value) * 2) + value)


def test_a_fused_function_pickles():
    _, ours = both([X], tt.exp(tt.sin(X)) * 2, STOCK)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ours))(VALUES[0]), ours(VALUES[0]))


def test_the_trace_of_the_root_is_kept():
    out = tt.exp(tt.sin(X))
    _, ours = both([X], out)
    assert ours.maker.fgraph.outputs[0].tag.trace == out.tag.trace


def test_another_fusion_stays_as_it_is():
    other = FusionOptimizer(local_add_mul_fusion)
    assert translate(other) is other


def test_its_profile_prints_as_theano_s():
    fgraph = FunctionGraph([X], [tt.exp(tt.sin(X))], clone=True)
    profile = GroupFusion().optimize(fgraph)
    stream = io.StringIO()
    GroupFusion.print_profile(stream, profile)
    assert "nb_replacement 1" in stream.getvalue()
