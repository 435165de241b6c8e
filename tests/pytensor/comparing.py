"""Compares PyTensor's functions on a device with those of its Python linker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
from pytensor.compile.mode import Mode

import optdb.pytensor  # noqa: F401 (registers the mode)


def compare(inputs: list[Any], outputs: Any, *calls: list[Any], rtol: float = 1e-10, on_host: int = 0) -> Any:
    """Compile a graph for the device and for PyTensor's Python linker, and compare each call, twice.

    `on_host` nodes may run on the host. Return the function of the device.
    """
    outputs = outputs if isinstance(outputs, list) else [outputs]
    device = pytensor.function(inputs, outputs, mode="OPENCL", on_unused_input="ignore")
    reference = pytensor.function(inputs, outputs, mode=Mode("py", None), on_unused_input="ignore")
    for args in [*calls, *calls]:
        for expected, computed in zip(reference(*args), device(*args), strict=True):
            expected = np.asarray(expected)
            assert computed.dtype == expected.dtype
            assert computed.shape == expected.shape
            tolerance = rtol if expected.dtype.itemsize > 4 or expected.dtype.kind in "iub" else max(rtol, 2e-5)
            np.testing.assert_allclose(computed, expected, rtol=tolerance, atol=tolerance)
    assert len(device.vm.jit_fn.on_host) == on_host, device.vm.jit_fn.on_host
    return device
