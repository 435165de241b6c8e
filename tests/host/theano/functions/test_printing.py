"""Fused elementwise ops have Theano's names, or lists of steps if shared parts would make the names long."""

from __future__ import annotations

import io

import numpy as np
import pytest
import theano
from theano import tensor as tt
from theano.scalar import Composite, float64


def composite(levels):
    """Return a Composite with some levels; each level uses the result of the last level twice."""
    x, y = float64("x"), float64("y")
    out = x + y
    for _ in range(levels):
        out = theano.scalar.tanh(out) * (out + x)
    return Composite([x, y], [out])


def test_short_names_are_theanos():
    assert str(composite(0)) == "Composite{(i0 + i1)}"
    assert str(composite(1)) == "Composite{(tanh((i0 + i1)) * ((i0 + i1) + i0))}"


def test_long_names_grow_as_the_graph_does():
    assert str(composite(6)).startswith("Composite{t0 = (i0 + i1), t1 = (tanh(t0) * (t0 + i0)), t2 = (tanh(t1) * (t1")
    assert str(composite(6)).endswith(", (tanh(t5) * (t5 + i0))}")
    shorter, longer = (len(str(composite(levels))) for levels in (40, 80))
    assert longer < 2.2 * shorter


def test_several_outputs_share_their_steps():
    x = float64("x")
    out = x
    for _ in range(8):
        out = out * out
    named = str(Composite([x], [out, out + x]))
    assert named.count("(t0 * t0)") == 1
    assert named.endswith("(t7 + i0)}")


def test_constants_stand_in_steps():
    x = float64("x")
    out = x
    for _ in range(8):
        out = theano.scalar.tanh(out + 0.5) * out
    assert "t0 = (tanh((i0 + Constant{0.5})) * i0), t1 = (tanh((t0 + Constant{0.5})) * t0)" in str(
        Composite([x], [out])
    )


def test_deep_expressions_become_steps():
    x = float64("x")
    out = x
    for _ in range(1000):
        out = theano.scalar.tanh(out)
    assert str(Composite([x], [out])).count("tanh(") == 1000


@pytest.mark.parametrize("mode", ["FAST_RUN", "TOPO"])
def test_a_function_of_many_steps_is_printed(mode):
    x = tt.dvector("x")
    out = x
    for _ in range(60):
        out = tt.tanh(out) * (out + x)
    with theano.change_flags(cxx=""):
        f = theano.function([x], out, mode=mode)
    text = io.StringIO()
    theano.printing.debugprint(f, file=text)
    assert 0 < len(text.getvalue()) < 100_000
    assert np.isfinite(f([0.5])).all()
