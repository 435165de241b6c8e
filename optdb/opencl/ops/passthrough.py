"""Ops that hand an array of the device on, and look at something on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host import ops as host
from optdb.host.graph import Apply
from optdb.lifters.transfers import record_transfer
from optdb.opencl.ops.counterpart import View
from optdb.runtime.arrays import to_host


class OpenCLAssert(View, host.Assert):
    """An array of the device, if conditions hold; these are on the host."""

    device_inputs = slice(0, 1)


class OpenCLPrint(View, host.Print):
    """An array of the device, printed as the host prints its arrays."""

    repeatable = False

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        (x,) = inputs
        outputs[0][0] = x
        value = to_host(x)
        record_transfer(self, value.nbytes)
        self.global_fn(self, value)
