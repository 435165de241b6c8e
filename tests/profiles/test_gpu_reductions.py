"""The command compares the times of reductions with those of copies."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from optdb.runtime.context import Context
from profiles.gpu import reductions
from profiles.gpu.reductions import ReductionCase, measure, numbers


def test_a_smaller_case_is_the_same_but_for_lengths():
    case = ReductionCase("products", (128, 64, 8), (0, 2), factor=(1, 64, 1))
    small = case.scaled(10)
    assert (small.shape, small.factor, small.axes) == ((10, 10, 8), (1, 10, 1), (0, 2))


def test_numbers_repeat():
    repeated = numbers((3, reductions._DRAWN), 0)
    assert repeated.dtype == "float32"
    np.testing.assert_array_equal(repeated[0], repeated[2])
    assert (numbers((4,), 0) != numbers((4,), 1)).all()


@pytest.mark.slow
def test_bytes_and_errors_of_a_case():
    seconds, nbytes, error = measure(ReductionCase("x", (6, 3, 5), (0, 2), factor=(1, 3, 1)), Context("opencl"))
    assert seconds > 0 and nbytes == 4 * (90 + 3 + 3) and error < 1e-6


@pytest.mark.slow
def test_the_command(monkeypatch):
    monkeypatch.setattr(reductions, "CASES", reductions.CASES[:2])
    result = CliRunner().invoke(reductions.main, ["--device", "opencl", "--small"])
    assert result.exit_code == 0, result.output
    assert "24x16x24x24" in result.output and "a copy moves" in result.output
