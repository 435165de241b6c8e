"""In each call, simulators of random functions (some with shared and updated inputs) return the functions' results."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import optdb
from tests.effort import examples
from tests.topo.graphs import STOCK
from tests.topo.test_values import compare, expressions, tolerance


def next_value(x, outputs):
    """Return a next value for `x`: an output with the same type and shape, or else `x`, negated unless boolean."""
    for out in outputs:
        if out.type == x.type and getattr(out.tag, "drawn_shape", None) == x.tag.drawn_shape:
            return out
    return x if x.dtype == "bool" else tt.neg(x)


@st.composite
def functions(draw):
    """Draw a function, arguments for its calls, and tolerances for its results."""
    inputs, outputs, values = draw(expressions())
    shared, free, given_values = {}, [], []
    for x, value in zip(inputs, values, strict=True):
        if draw(st.booleans(), label="shared"):
            shared[x] = theano.shared(value, name=x.name, broadcastable=x.broadcastable)
        else:
            free.append(x)
            given_values.append(value)
    updates = [(shared[x], next_value(x, outputs)) for x in shared if draw(st.booleans(), label="updated")]
    return free, outputs, shared, updates, given_values


@pytest.mark.slow
@settings(max_examples=examples(20), suppress_health_check=list(HealthCheck))
@given(functions())
def test_random_functions(function):
    inputs, outputs, shared, updates, values = function
    f = theano.function(inputs, outputs, givens=shared, updates=updates, mode=STOCK, on_unused_input="ignore")
    sim = optdb.SimulatorOCL(f, device="dev0")
    rtol = tolerance(outputs)
    with np.errstate(all="ignore"):
        for call in range(4):
            compare(sim(*values), f(*values), rtol, f"call {call}")
            for variable, _ in updates:
                compare([sim.get(variable)], [variable.get_value()], rtol, f"{variable.name} after call {call}")
