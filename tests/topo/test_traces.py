"""Stack traces lead from new nodes to the user's line, and do not accumulate."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof import FunctionGraph
from theano.gof.opt import copy_stack_trace
from theano.scalar.basic import Composite
from theano.tensor.basic import constant_cache
from theano.tensor.elemwise import Elemwise

import optdb
from profiles import models
from tests.topo.graphs import STOCK


def traces_of(fgraph):
    return [getattr(var.tag, "trace", []) for var in fgraph.variables]


def total(fgraph):
    return sum(map(len, traces_of(fgraph)))


def test_new_nodes_point_at_the_users_line():
    x = tt.dvector("x")
    y = tt.sqr(x) * x * x  # the expected line
    f = theano.function([x], tt.exp(y), mode=optdb.mode(STOCK).excluding("fusion", "inplace"))
    made = [node for node in f.maker.fgraph.apply_nodes if node.op != tt.exp]
    assert made
    for node in made:
        lines = [line for trace in node.outputs[0].tag.trace for _, _, _, line in trace]
        assert any("the expected line" in line for line in lines)


def test_as_many_nodes_have_a_trace_as_under_stock():
    model = models.build("mlp", depth=1, width=4)
    with_trace = []
    for mode in (STOCK, optdb.mode(STOCK)):
        f = theano.function(model.inputs, model.outputs, updates=model.updates, mode=mode.excluding("inplace"))
        nodes = f.maker.fgraph.apply_nodes
        with_trace.append(sum(bool(getattr(node.outputs[0].tag, "trace", [])) for node in nodes) / len(nodes))
    stock, ours = with_trace
    assert ours >= 0.95 * stock


@pytest.mark.thorough_cases("mixture-size0")
@pytest.mark.slow_cases("mixture-size0")
@pytest.mark.parametrize("name, size", [("mixture", {"groups": 1}), ("mlp", {"depth": 1})])
def test_traces_do_not_grow(name, size):
    """Stack traces grow neither with the engine's visits, nor from one compilation to the next.

    copy_stack_trace appends to a variable's existing trace, and rewriters call it for constants that several nodes
    share. More than twice stock Theano's length is a failure.
    """
    model = models.build(name, **size)

    def compiled(mode):
        f = theano.function(
            model.inputs, model.outputs, updates=model.updates, mode=mode.excluding("inplace"), on_unused_input="ignore"
        )
        return f.maker.fgraph

    stock = total(compiled(STOCK))
    first = total(compiled(optdb.mode(STOCK)))
    cached = sum(len(getattr(constant.tag, "trace", [])) for constant in constant_cache.values())
    again = compiled(optdb.mode(STOCK))
    assert total(again) == first
    assert first <= 2 * stock
    assert sum(len(getattr(constant.tag, "trace", [])) for constant in constant_cache.values()) == cached


def test_a_trace_is_not_added_twice():
    """If one constant replaces fifty nodes from the same line, it gets their trace only once."""
    x = tt.dvector("x")
    line = tt.sin(x)
    sines = [tt.sin(x[i:]) for i in range(50)]
    for sine in sines:
        sine.tag.trace = line.tag.trace
    shared = tt.constant(np.array([2.0])).clone()

    def local_shared(fgraph, node):
        copy_stack_trace(node.outputs[0], shared)
        return [node.inputs[0] * shared]

    db = optdb.TopoOptDB()
    optdb.register_topo("t", db=db, tracks=[tt.sin])(local_shared)
    fgraph = FunctionGraph([x], sines, clone=True)
    db.query("+t").optimize(fgraph)
    assert tt.sin not in [node.op for node in fgraph.apply_nodes]
    assert shared.tag.trace.count(line.tag.trace[0]) == 1
    assert len(shared.tag.trace) <= 2


def test_traces_of_many_outputs_stay_apart():
    """Traces stay short, although the in-place rewriter replaces a node anew for each of the node's outputs."""
    numbers = [theano.scalar.float64() for _ in range(8)]
    many = Elemwise(Composite(numbers, [theano.scalar.tanh(number) for number in numbers]))
    inputs = tt.dvectors(8)
    results = many(*[tt.sort(x) for x in inputs])
    f = theano.function(inputs, results, mode=optdb.mode(STOCK).excluding("fusion"))
    (node,) = [node for node in f.maker.fgraph.apply_nodes if isinstance(node.op, Elemwise)]
    assert len(node.op.inplace_pattern) == 8
    # An output has at most the user's trace and one trace from each replacement.
    assert max(len(out.tag.trace) for out in node.outputs) <= 1 + len(numbers)
