"""The script `profiles.simulator` measures the cost of calls; the tests use few kernels, few calls and small arrays."""

from __future__ import annotations

import re

import pytest
import theano
from click.testing import CliRunner

from profiles.simulator import main
from tests.processes import python


@pytest.mark.slow
@pytest.mark.parametrize(
    "command, pattern",
    [
        (["overhead", "--kernels", "6", "--repeat", "3"], r"ratio .* (?P<number>[\d.]+)"),
        (["overhead", "--kernels", "4", "--repeat", "2", "--tanh"], r"launches merged +\W+(?P<number>\d+)"),
        (["copies", "--megabytes", "0.2", "--repeat", "2"], r"x\.sum\(\) +\W+(?P<number>[\d.]+)"),
        (["soak", "--calls", "100", "--shapes", "3"], r"100 +\W+(?P<number>[\d,]+)"),
    ],
)
def test_it_measures(command, pattern):
    with theano.configparser.change_flags(cxx=""):
        done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = re.search(pattern, done.output)
    assert found, done.output
    assert float(found["number"].replace(",", "")) > 0


def test_it_is_a_program():
    assert "overhead" in python("-m", "profiles.simulator", "--help").stdout
