"""The command measures the cost of a step without a C compiler."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from profiles import without_compiler


@pytest.mark.slow
def test_a_model_with_and_without():
    result = CliRunner().invoke(without_compiler.main, ["--small", "--repeat", "1", "mlp"])
    assert result.exit_code == 0, result.output
    assert "mlp" in result.output and "geometric mean" in result.output


def test_a_step_takes_time():
    assert without_compiler.measure("mlp", {}, 1) > 0
