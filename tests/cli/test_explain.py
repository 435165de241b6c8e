"""``python -m optdb explain``: what it prints after a script."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from optdb.cli.explain import _report


def explanation(*places):
    return SimpleNamespace(name="f", places=dict.fromkeys(places, 1), render=lambda: f"runs on {places}")


@pytest.mark.parametrize(
    ("explanations", "advises"),
    [([["host"], ["host"]], True), ([["host"], ["host", "opencl"]], False), ([["opencl"]], False), ([], False)],
)
def test_where_no_op_is_on_a_device_the_flag_is_named(capsys, explanations, advises):
    _report([explanation(*places) for places in explanations], None)
    shown = capsys.readouterr().err
    assert ("THEANO_FLAGS=optdb.device=opencl" in shown) == advises
    assert ("no function was compiled" in shown) == (not explanations)
