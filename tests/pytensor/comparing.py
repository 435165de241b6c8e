"""Compares PyTensor's functions on a device with those of its Python linker."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import optdb.pytensor
from optdb.runtime.context import Context
from tests.opencl_device import new_context


class SortOnHost(Op):
    """An op that sorts along an axis, and that no device has."""

    __props__ = ("axis",)

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def make_node(self, x: Any) -> Apply:
        """Return a node that sorts an array."""
        return Apply(self, [x], [x.type()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Sort an array."""
        output_storage[0][0] = np.sort(inputs[0], self.axis)

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the output's shape, which is the input's shape."""
        return shapes


def sort_on_host(x: Any, axis: int = -1) -> Any:
    """Sort an array along an axis with a node that runs on the host."""
    return SortOnHost(axis)(x)


def mode_of_kind(kind: str, **options: Any) -> Mode:
    """Return a mode with the given options, and with the kernels of processors ('cpu') or of other devices ('gpu')."""
    return Mode(_LinkerOfKind(kind, options), optdb.pytensor.OPENCL.provided_optimizer)


class _LinkerOfKind(optdb.pytensor.OpenCLLinker):
    def __init__(self, kind: str, options: dict[str, Any]) -> None:
        super().__init__()
        self.kind, self.options = kind, options

    @property
    def context(self) -> Context:
        return context_of_kind(self.kind, *self.options.items())


@functools.cache
def context_of_kind(kind: str, *options: tuple[str, Any]) -> Context:
    made = new_context()
    made.profile = made.profile.as_kind(kind)
    made.options = replace(made.options, **dict(options))
    return made


def compare(
    inputs: list[Any],
    outputs: Any,
    *calls: list[Any],
    rtol: float = 1e-10,
    on_host: int = 0,
    mode: Any = "OPENCL",
) -> Any:
    """Compile a graph for the device and for PyTensor's Python linker; make all calls twice; compare the results.

    Exactly `on_host` nodes run on the host. Return the device function.
    """
    outputs = outputs if isinstance(outputs, list) else [outputs]
    device = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    reference = pytensor.function(inputs, outputs, mode=Mode("py", None), on_unused_input="ignore")
    for args in [*calls, *calls]:
        for expected, computed in zip(reference(*args), device(*args), strict=True):
            expected = np.asarray(expected)
            assert computed.dtype == expected.dtype
            assert computed.shape == expected.shape
            tolerance = rtol if expected.dtype.itemsize > 4 or expected.dtype.kind in "iub" else max(rtol, 2e-5)
            np.testing.assert_allclose(computed, expected, rtol=tolerance, atol=tolerance)
    reasons = device.vm.jit_fn.host.reasons
    assert len(reasons) == on_host, reasons
    return device
