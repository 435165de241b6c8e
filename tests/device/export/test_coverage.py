"""The calls for which a trace is valid."""

from __future__ import annotations

from optdb.device.export.coverage import pinned_lengths
from optdb.runtime.calling import Argument, Signature
from optdb.runtime.expressions import AxisLength
from optdb.runtime.recording import Trace
from optdb.runtime.sizes import as_int


def test_a_length_that_is_asked_for_as_a_number_is_pinned():
    found = Trace("cpu", 2)
    rows, columns = (found.rules.symbol(length, AxisLength(0, axis)) for axis, length in enumerate((5, 3)))
    found.arguments.append((rows, columns))
    assert 2 * rows > columns and as_int(rows) is rows
    signature = Signature((Argument("x", "float32", (False, False)),), "one")
    assert pinned_lengths(found, signature) == ()
    assert int(2 * columns) == 6
    assert pinned_lengths(found, signature) == ("(x.shape[1] * 2) == 6",)
