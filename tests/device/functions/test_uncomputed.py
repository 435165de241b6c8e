"""Commands of functions are traced without computing anything; operations that need a computed value are rejected."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.device.expressions import applied
from optdb.device.functions.host_parts import HostValue
from optdb.device.functions.tracer import Retrace, uncomputed
from optdb.device.tensors import Constant
from optdb.runtime.arrays import empty
from optdb.runtime.recording import Trace, Tracer, Untraceable
from tests.opencl_device import new_context


def enqueued(describe, held=()):
    """Return the outputs and commands of a function of two vectors, traced by `describe`."""
    context = new_context()
    tracer = Tracer(Trace("cpu", 2), context)
    with uncomputed(describe, 2, 1, frozenset(held), frozenset(), {}, context) as linked, tracer.following():
        for var in linked.inputs:
            linked.cells[var][0] = empty(context, (3,), "float64")
        linked.nodes[0].compute()
    return [linked.value(var) for var in linked.outputs], tracer.trace.commands


def test_commands_are_enqueued_and_values_that_never_change_are_returned():
    (result,), commands = enqueued(lambda tracer: [applied("Mul", "float64", *tracer.arguments)])
    assert result.shape == (3,) and len(commands) == 1
    (result,), commands = enqueued(lambda tracer: [Constant(tracer.concrete(Constant(np.arange(3.0))))])
    np.testing.assert_array_equal(result, np.arange(3.0))
    assert not commands


def test_a_trace_that_has_learned_more_begins_anew():
    tries = []

    def describe(tracer):
        tries.append(tracer)
        if len(tries) < 3:
            raise Retrace
        return [tracer.arguments[0]]

    enqueued(describe)
    assert len(set(tries)) == 3


@pytest.mark.parametrize(
    ("describe", "complaint"),
    [
        (lambda tracer: tracer.on_host("an eigenvalue", tracer.arguments), "steps that run on the host: an eigenvalue"),
        (lambda tracer: tracer.check(tracer.arguments[0], ValueError), "checks values and raises errors"),
        (lambda tracer: tracer.argument_value(0), "lengths depend on the values of arguments"),
        (lambda tracer: tracer.concrete(tracer.arguments[0]), "lengths depend on the values of arguments"),
        (lambda tracer: tracer.concrete(tracer.arguments[1]), "lengths depend on the value of a shared variable"),
        (lambda tracer: [HostValue(0)], "a result is not an array"),
    ],
)
def test_what_only_a_computed_call_knows_is_refused(describe, complaint):
    with pytest.raises(Untraceable, match=complaint):
        enqueued(describe, held=[1])
