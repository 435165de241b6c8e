"""Vector functions that a driver computes wrongly are replaced by other code, for this driver and in exported files."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.codegen.elementwise_programs import Elementwise, program_elements
from optdb.codegen.operation import ArraySpec
from optdb.codegen.scalars.program import Scalar, ScalarProgram
from tests.codegen.layouts import compute, context, device_array

TRIGONOMETRY = ("Sin", "Cos", "Tan")


def program(name, dtype):
    return ScalarProgram.of(Scalar(name, dtype), [dtype])


def text(name, dtype, wrong):
    elements = program_elements(program(name, dtype), [False], 1, "e", "cpu", frozenset(wrong))
    return "".join(kernel.code for kernel in elements.kernels())


@pytest.mark.parametrize("name", TRIGONOMETRY)
def test_a_function_is_replaced_where_it_is_wrong(name):
    assert "FLT_MIN" in text(name, "float32", [name])
    assert "FLT_MIN" not in text(name, "float32", [])
    assert text(name, "float64", [name]) == text(name, "float64", [])


@pytest.mark.parametrize("name", TRIGONOMETRY)
def test_denormal_numbers_beside_huge_ones(each_device_kind, name):
    values = np.full(64, 3e38, np.float32)
    values[::3] = 1e-40
    operation = Elementwise(context(), program(name, "float32"), [ArraySpec("float32", (False,))])
    (result,) = compute(operation, device_array(values))
    expected = getattr(np, name.lower())(values[::3].astype("float64"))
    np.testing.assert_allclose(result[::3], expected, rtol=1e-5, atol=1e-37)
