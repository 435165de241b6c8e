"""optdb sorts nodes in the same order as Theano."""

from __future__ import annotations

import pytest
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.gof.graph import inputs as stock_roots
from theano.gof.graph import io_toposort as stock

from optdb.host.api.graph import io_toposort, roots
from tests.effort import examples

steps = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=25)


def graph_of(program):
    """Return expressions that share parts; some are the two outputs of a split."""
    x = tt.dvector("x")
    pool = [x, tt.dvector("y"), tt.constant([1.0, 2.0])]
    for kind, first, second in program:
        a, b = pool[first % len(pool)], pool[second % len(pool)]
        pool += [[a + b], [tt.exp(a)], [tt.concatenate([a, b])], tt.split(a, [1, 1], 2)][kind]
    return pool


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(steps, st.integers(0, 20), st.integers(1, 4))
def test_the_order_is_theanos(program, first_input, outputs):
    pool = graph_of(program)
    boundary = pool[first_input % len(pool)]  # an inner variable as an input, at which the search stops
    if boundary.owner is not None and len(boundary.owner.outputs) > 1:
        boundary = pool[0]  # Theano's search never ends if only some outputs of a node are computed
    inputs = [*pool[:2], boundary]
    assert io_toposort(inputs, pool[-outputs:]) == stock(inputs, pool[-outputs:])


def test_orderings_and_clients_are_theanos():
    x = tt.dvector("x")
    first, second = tt.exp(x), tt.sin(x)
    outputs = [first, second]
    orderings = {first.owner: [second.owner]}
    assert io_toposort([x], outputs, orderings) == stock([x], outputs, orderings) == [second.owner, first.owner]
    clients = {}
    io_toposort([x], outputs, clients=clients)
    assert set(clients[x]) == {first.owner, second.owner}


@settings(max_examples=examples(100))
@given(steps, st.lists(st.integers(0, 40), max_size=3), st.integers(1, 4))
def test_the_roots_are_theanos(program, blocked, outputs):
    pool = graph_of(program)
    blockers = [pool[i % len(pool)] for i in blocked]
    for stop in (None, blockers):
        assert roots(pool[-outputs:], stop) == stock_roots(pool[-outputs:], stop)
