"""A warning names host nodes that take a large share of the time of a function's calls."""

from __future__ import annotations

import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from optdb.pytensor import HostNodesWarning, call_warnings
from tests.pytensor.comparing import sort_on_host

v = pt.vector("v")


def warned(output, calls=call_warnings._COMPILING_CALLS + call_warnings._TIMED_HOST_CALLS + 5):
    f = pytensor.function([v], output, mode="OPENCL")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(calls):
            f(np.ones(3))
    return [entry for entry in caught if entry.category is HostNodesWarning]


@pytest.mark.parametrize(("share", "count"), [(0.0, 1), (1.0, 0)])
def test_a_large_share_of_the_host_is_told_once_in_each_function(share, count, monkeypatch):
    monkeypatch.setattr(call_warnings, "LARGE_SHARE", share)
    for _ in range(2):
        found = warned(pt.exp(sort_on_host(v))[::2])
        assert len(found) == count
        for entry in found:
            assert "SortOnHost" in str(entry.message) and "mode='OPENCL_AUTO'" in str(entry.message)
            assert entry.filename == __file__


def test_functions_of_the_device_alone_are_not_told(monkeypatch):
    monkeypatch.setattr(call_warnings, "LARGE_SHARE", 0.0)
    assert not warned(pt.exp(v).sum())
