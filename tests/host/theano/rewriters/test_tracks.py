"""Rewriters decline the ops that optdb's table of tracks lists for them."""

from __future__ import annotations

from itertools import product

import pytest
import theano.tensor as tt
from theano import scalar
from theano.compile.ops import Shape_i, ViewOp
from theano.gof import Constant, FunctionGraph
from theano.gof.graph import inputs as graph_inputs
from theano.tensor.elemwise import Elemwise
from theano.tensor.opt import ShapeFeature, local_expm1, local_track_shape_i, local_useless_elemwise, local_view_op

from optdb.host.api.facts import FACTS, facts_of
from optdb.host.api.replacements import name_of
from tests.effort import examples
from tests.topo.graphs import uncached_constants


def may_apply(rewriter, op):
    return facts_of(rewriter).may_apply(op)


def elementwise_ops():
    found = {id(op): op for op in vars(tt).values() if isinstance(op, Elemwise)}
    casts = [Elemwise(scalar.basic.Cast(scalar.get_scalar_type(name))) for name in ("int8", "float32", "float64")]
    x, y = scalar.float64("x"), scalar.float64("y")
    return [*found.values(), *casts, Elemwise(scalar.Composite([x, y], [x + y, x * y]))]


def operands():
    """Draw operands that make one of the rewriters apply: repeated operands, constants, shapes, inverses, switches."""
    x, y = tt.dvector("x"), tt.dvector("y")
    condition = tt.gt(x, 0)
    i = tt.lscalar("i")
    length = Shape_i(0)(x)
    switch = tt.switch(condition, x, y)
    constants = [tt.constant(value) for value in (0, 1, 0.0)]
    return [x, y, i, condition, length, tt.exp(x), tt.neg(x), tt.tanh(x), tt.cast(x, "float32"), switch, *constants]


def arguments(arity):
    choices = operands()
    if arity > 2:
        return [[choices[0]] * arity, choices[3:4] + choices[:2]]
    combined = list(product(choices, repeat=arity))
    # Take every n-th combination. The number of choices is prime, so each choice still occurs as the first and as the
    # second operand.
    step = len(combined) // examples(len(combined)) if arity == 2 else 1
    return combined[::step]


def nodes(op):
    for args in arguments(op.scalar_op.nin if op.scalar_op.nin > 0 else 2):
        try:
            yield op(*args, return_list=True)[0].owner
        except TypeError:  # the op does not accept this dtype
            continue


@pytest.mark.slow_cases(
    "local_cast_cast",
    "local_elemwise_sub_zeros",
    "local_expm1",
    "local_func_inv",
    "local_merge_switch_same_cond",
    "local_track_shape_i",
    "local_useless_composite",
    "local_useless_elemwise",
    "local_useless_elemwise_comparison",
    "local_useless_switch",
    "local_view_op",
    "local_logsoftmax",
)
@pytest.mark.parametrize(
    "rewriter", [rewriter for rewriter, facts in FACTS.items() if facts.tracks is not None], ids=name_of
)
def test_what_is_left_out_would_have_declined(rewriter):
    """A rewriter that `may_apply` rules out for an op changes no node of this op, even in a graph with shapes."""
    with uncached_constants():
        tried = [node for op in elementwise_ops() if not may_apply(rewriter, op) for node in nodes(op)]
        outputs = [node.outputs[0] for node in tried]
        variables = [var for var in graph_inputs(outputs) if not isinstance(var, Constant)]
        FunctionGraph(variables, outputs, clone=False, features=[ShapeFeature()])
        assert [node for node in tried if rewriter.transform(node)] == []
    assert len(tried) > 200


def test_what_may_apply_is_asked():
    assert may_apply(local_expm1, tt.sub)
    assert may_apply(local_useless_elemwise, tt.mul)
    assert may_apply(local_view_op, ViewOp())
    assert may_apply(local_track_shape_i, Shape_i(0))
    assert not may_apply(local_expm1, tt.add)
    assert not may_apply(local_view_op, tt.add)
    assert not may_apply(local_expm1, ViewOp())


def test_an_unknown_rewriter_is_asked_about_every_op():
    assert may_apply(tt.opt.local_mul_canonizer, tt.exp)
