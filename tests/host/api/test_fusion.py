"""A Composite that is made from steps equals the Composite that Theano makes from the same scalar graph."""

from __future__ import annotations

import pickle

import pytest
import theano
import theano.tensor as tt
from theano import scalar
from theano.scalar import Composite, UnaryScalarOp, float32, float64, upgrade_to_float

from optdb.host.api.fusion import composite

X, Y = tt.dvector("x"), tt.dvector("y")
ADD, MUL, EXP, ABS = scalar.add, scalar.mul, scalar.exp, scalar.abs_


class MakesItsOwnNode(UnaryScalarOp):
    """A scalar op that doubles its input; its `make_node` returns a node of another op."""

    def make_node(self, x):
        return scalar.add.make_node(x, x)


def doubled_and_one():
    a = float64()
    return Composite([a], [a + a + scalar.constant(1.0, "float64")])


def of_graph(make):
    inputs = float64(), float64()
    return Composite(inputs, [make(*inputs)])


CASES = {
    "two steps": ([(ADD, (0, 1), "float64"), (EXP, (2,), "float64")], lambda a, b: EXP(a + b)),
    "an op of its own class": ([(ADD, (0, 1), "float64"), (ABS, (2,), "float64")], lambda a, b: ABS(a + b)),
    "a step twice": (
        [(MUL, (0, 1), "float64"), (MUL, (0, 1), "float64"), (ADD, (2, 3), "float64")],
        lambda a, b: (lambda product: product + product)(a * b),
    ),
    "an unused input": ([(EXP, (0,), "float64"), (ABS, (2,), "float64")], lambda a, b: ABS(EXP(a))),
    "a composite": (
        [(of_graph(lambda a, b: EXP(a * b)), (1, 0), "float64"), (ADD, (2, 0), "float64")],
        lambda a, b: EXP(b * a) + a,
    ),
    "a composite with a constant": (
        [(EXP, (0,), "float64"), (doubled_and_one(), (2,), "float64")],
        lambda a, b: (lambda e: e + e + scalar.constant(1.0, "float64"))(EXP(a)),
    ),
    "a node of another op": (
        [(EXP, (0,), "float64"), (MakesItsOwnNode(upgrade_to_float), (2,), "float64")],
        lambda a, b: (lambda e: ADD(e, e))(EXP(a)),
    ),
}


@pytest.mark.parametrize("steps, make", CASES.values(), ids=CASES)
def test_it_is_theanos_composite(steps, make):
    with theano.change_flags(compute_test_value="off"):
        ours, theirs = composite([X, Y], steps), of_graph(make)
    assert ours == theirs
    assert hash(ours) == hash(theirs)
    assert (ours.inputs_type, ours.outputs_type) == (theirs.inputs_type, theirs.outputs_type)
    assert [str(node) for node in ours.fgraph.toposort()] == [str(node) for node in theirs.fgraph.toposort()]
    assert pickle.loads(pickle.dumps(ours)) == ours


@pytest.mark.parametrize("steps, make", CASES.values(), ids=CASES)
def test_its_graphs_are_apart_and_consistent(steps, make):
    op = composite([X, Y], steps)
    # A graph also contains inputs that its output does not need, which `check_integrity` would report.
    op.fgraph.variables -= {var for var in op.fgraph.inputs if not var.clients}
    op.fgraph.check_integrity()
    assert not any(hasattr(var, "fgraph") for var in theano.gof.graph.variables(op.inputs, op.outputs))
    assert not set(op.fgraph.variables) & set(theano.gof.graph.variables(op.inputs, op.outputs))


def test_a_composite_for_other_types_is_made_anew():
    """If a Composite is applied to inputs of other types, Theano makes a node of another op."""
    inner = of_graph(lambda a, b: EXP(a) + b)
    x, y = tt.fvector(), tt.fvector()
    op = composite([x, y], [(inner, (0, 1), "float32"), (EXP, (2,), "float32")])
    a, b = float32(), float32()
    assert op == Composite([a, b], [EXP(EXP(a) + b)])
    assert op.outputs_type == (float32,)
