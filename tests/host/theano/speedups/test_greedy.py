"""Slices and scans are simplified as by Theano's own function."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.gof.opt import pre_greedy_local_optimizer as stock
from theano.tensor import opt

import optdb
from optdb.host.api.session import optimizing
from optdb.host.theano.speedups import greedy
from tests.effort import examples

RULES = [
    opt.local_abs_merge,
    opt.local_mul_switch_sink,
    opt.local_upcast_elemwise_constant_inputs,
    opt.local_useless_switch,
    opt.constant_folding,
]
STEPS = [
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: tt.switch(tt.lt(a, b), a, 0),
    lambda a, b: tt.switch(tt.lt(1, 2), a, b),
    lambda a, b: tt.minimum(a, tt.constant(3) - 1),
    lambda a, b: abs(a) * abs(b),
]
programs = st.lists(
    st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=7
)


@pytest.fixture(autouse=True)
def forgetting():
    yield
    greedy.forget()


def simplified(program, simplify):
    """Simplify each expression, built from the previous ones, and print the last expression."""
    x, y = tt.lscalar("x"), tt.lscalar("y")
    pool = [x, y, tt.constant(0, dtype="int64"), tt.constant(2, dtype="int64")]
    for step, first, second in program:
        built = STEPS[step](pool[-1 - first % len(pool)], pool[-1 - second % len(pool)])
        pool.append(simplify(RULES, simplify(RULES, built)))
    return theano.printing.debugprint(pool[-1], file="str", ids="")


@settings(max_examples=examples(60))
@given(programs)
def test_it_simplifies_as_theano_does(program):
    with optimizing():
        ours = simplified(program, greedy.pre_greedy_local_optimizer)
        theirs = simplified(program, stock)
    assert ours == theirs


def test_what_is_in_a_graph_is_left_alone():
    x = tt.lscalar("x")
    graph = theano.gof.FunctionGraph([x], [x + (tt.constant(1) - 1)])
    (inner,) = graph.outputs
    with optimizing():
        out = greedy.pre_greedy_local_optimizer(RULES, inner * 2)
    assert out.owner.inputs[0] is inner
    assert inner.owner in graph.apply_nodes and inner.owner.inputs[1].owner is not None


def test_it_looks_once_at_what_stays():
    x = tt.lscalar("x")
    looked_at = []

    @theano.gof.local_optimizer([tt.add])
    def note(node):
        looked_at.append(node)

    out = x + x
    for _ in range(3):
        greedy.pre_greedy_local_optimizer([note], out)
    assert looked_at == [out.owner]


def test_merged_slices_have_the_same_values():
    x, i = tt.dvector("x"), tt.lscalar("i")
    out = x[i:][::-1][1:7:2]
    f = theano.function([x, i], out, mode=theano.Mode("py", "fast_run"))
    g = theano.function([x, i], out, mode=optdb.mode(theano.Mode("py", "fast_run")))
    assert len(g.maker.fgraph.apply_nodes) <= len(f.maker.fgraph.apply_nodes)
    for start in (-12, -3, 0, 4, 20):
        np.testing.assert_array_equal(f(np.arange(10.0), start), g(np.arange(10.0), start))
