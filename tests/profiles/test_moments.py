"""The command measures the errors of sums that are accumulated in float32."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from profiles import moments
from profiles.moments import METHODS, QUANTITIES, ExactQuantity, exact

SHAPE = (32, 3, 16, 16)
NAMES = [method.name for method in METHODS]


def test_exact_numbers_of_channels():
    x = np.array([[1, 10], [3, 30]], "float32").reshape(2, 2, 1, 1)
    dy = np.array([[1, 1], [2, -1]], "float32").reshape(2, 2, 1, 1)
    mean, inverse, total, product = exact(x, dy, np.array([2.5, 20]))
    np.testing.assert_allclose(mean.value.astype(float), [2, 20])
    np.testing.assert_allclose(inverse.value.astype(float), [1, 0.1], rtol=1e-11)
    np.testing.assert_allclose(total.value.astype(float), [3, 0])
    # The products are products of elements from which the given mean is subtracted.
    np.testing.assert_allclose(product.value.astype(float), [-1.5 + 2 * 0.5, -10 - 10])
    np.testing.assert_allclose(total.spread.astype(float), np.sqrt([5, 2]))


def test_errors_are_in_units_of_what_is_larger():
    unit = np.finfo("float32").eps
    assert ExactQuantity(np.array([1.0]), np.array([0.1])).error(np.array([1 + 3 * unit])) == pytest.approx(3)
    assert ExactQuantity(np.array([1e-9]), np.array([1.0])).error(np.array([1e-9 + 3 * unit])) == pytest.approx(3)
    assert ExactQuantity(np.array([0.0, 1.0]), np.array([1.0, 1.0])).error(np.array([0, 1 - unit])) == pytest.approx(1)


@pytest.mark.slow
def test_compensated_sums_are_as_exact_as_those_of_float64():
    rows = list(moments.measure({"small": SHAPE}, moments.DATA, "opencl"))
    assert [row.method for row in rows] == NAMES * len(moments.DATA)
    for row in rows:
        by_quantity = dict(zip(QUANTITIES, row.errors, strict=True))
        if row.method.startswith("batch normalization"):
            assert max(row.errors) < 8, row
        elif row.method != "sums, float32":
            assert by_quantity["sum of dy"] <= 0.5 and by_quantity["mean"] < 1.5, row
    by_name = {(row.data, row.method): row for row in rows}
    for data in moments.DATA:
        assert by_name[data, "sums, compensated"].errors == by_name[data, "sums, float64"].errors
        assert by_name[data, "sums, float32"].errors > by_name[data, "sums, float64"].errors


@pytest.mark.slow
def test_the_command(monkeypatch):
    monkeypatch.setattr(moments, "SHAPES", dict.fromkeys(moments.SHAPES, SHAPE))
    result = CliRunner().invoke(moments.main, ["--shape", "cifar_resnet, first", "--data", "normal"])
    assert result.exit_code == 0, result.output
    assert all(name in result.output for name in (*NAMES, *QUANTITIES, "normal"))
    assert "1e4" not in result.output
    assert CliRunner().invoke(moments.main, ["--data", "none"]).exit_code == 2
