"""The script about what calls cost, with few kernels, few calls and small arrays."""

from __future__ import annotations

import re

import pytest

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
    done = python("-m", "profiles.simulator", *command, flags="cxx=")
    assert done.returncode == 0, done.stderr
    found = re.search(pattern, done.stdout)
    assert found, done.stdout
    assert float(found["number"].replace(",", "")) > 0
