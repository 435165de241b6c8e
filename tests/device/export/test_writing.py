"""Functions that lazy tensors describe can be written to files without Theano or PyTensor."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from optdb.device.export import Exportable, Held, Traceable, write
from optdb.device.export.writing import pinned_lengths
from optdb.device.expressions import applied
from optdb.device.functions.tracer import uncomputed
from optdb.runtime.calling import Argument, Signature
from optdb.runtime.exported import load
from optdb.runtime.expressions import AxisLength
from optdb.runtime.recording import Trace
from optdb.runtime.sizes import as_int
from tests.opencl_device import new_context

W = np.linspace(-1, 1, 4)


def mul(x, y):
    return applied("Mul", "float64", x, y)


@pytest.fixture(scope="module")
def context():
    return new_context()


def context_of_kind(device_kind):
    made = new_context()
    made.profile = made.profile.as_kind(device_kind)
    return made


def function(context, held=None, name="step"):
    """Return a function of x that returns w * w, and updates w to x * x."""
    held = held or Held("w", "w", "float64", (False,), lambda: W)

    def outputs(tracer):
        x, w = tracer.arguments
        return [mul(w, w), mul(x, x)]

    return Exportable(
        name,
        Traceable(context, functools.partial(uncomputed, outputs, 2, 2, {1}, set(), {1: 1}), ["float64"]),
        Signature((Argument("x", "float64", (False,)),), "single"),
        [0, held],
    )


@pytest.mark.parametrize("device_kind", ["cpu", "gpu"])
def test_functions_share_what_they_hold(tmp_path, context, device_kind):
    functions = {None: function(context), "again": function(context)}
    reports = write(tmp_path / "f.optdb", functions, {None: [(W,)], "again": [{"x": W}]})
    assert [(report.function, report.device_kind, report.pinned) for report in reports] == [
        (name, kind, (f"x.shape[0] == {len(W)}",)) for name in ("step", "again") for kind in ("cpu", "gpu")
    ]
    there = load(tmp_path / "f.optdb", context_of_kind(device_kind))
    np.testing.assert_allclose(there(W + 1), W**2)
    np.testing.assert_allclose(there.again(W + 2), (W + 1) ** 4)
    np.testing.assert_allclose(there.get("w"), (W + 2) ** 2)


def test_names_are_those_of_identifiers(tmp_path, context):
    other = Held("other", "w", "float64", (False,), lambda: W)
    functions = {"call": function(context, other), None: function(context, name="not an ASCII identifier")}
    write(tmp_path / "f.optdb", functions, {name: [(W,)] for name in functions}, ["cpu"])
    there = load(tmp_path / "f.optdb", context_of_kind("cpu"))
    assert list(there) == ["call", "call_2"]
    np.testing.assert_allclose(there.get("w_2"), W)
    with pytest.raises(ValueError, match="'a b' cannot be the name of a function in a file"):
        write(tmp_path / "g.optdb", {"a b": function(context)}, {"a b": [(W,)]})


@pytest.mark.parametrize(
    ("examples", "device_kinds", "error", "complaint"),
    [
        (None, ["cpu"], ValueError, r"step needs an example call.*\nThe cure: call it once before"),
        ({"stp": [(W,)]}, ["cpu"], ValueError, "examples for 'stp', but no such function"),
        (
            [W],
            ["cpu"],
            TypeError,
            r"a ndarray is not a call.\nThe cure, for one call with x and y: examples=\[\(x, y\)\]",
        ),
        ([(W, W)], ["cpu"], TypeError, "step takes 1 arguments"),
        ([(W,)], "cpu", ValueError, r"not 'cpu'.\nThe cure, for processors only: device_kinds="),
        ([(W,)], [], ValueError, "device_kinds must be a non-empty subset of"),
        ([(W[:3],)], ["cpu"], RuntimeError, "step cannot be exported: the shared variable w of shape"),
    ],
)
def test_errors_name_the_cure(tmp_path, context, examples, device_kinds, error, complaint):
    with pytest.raises(error, match=complaint):
        write(tmp_path / "f.optdb", {None: function(context)}, examples, device_kinds)
    assert not list(tmp_path.iterdir())


def test_a_length_that_is_asked_for_as_a_number_is_pinned():
    found = Trace("cpu", 2)
    rows, columns = (found.rules.symbol(length, AxisLength(0, axis)) for axis, length in enumerate((5, 3)))
    found.arguments.append((rows, columns))
    assert 2 * rows > columns and as_int(rows) is rows
    signature = Signature((Argument("x", "float32", (False, False)),), "one")
    assert pinned_lengths(found, signature) == ()
    assert int(2 * columns) == 6
    assert pinned_lengths(found, signature) == ("(x.shape[1] * 2) == 6",)
