"""Fixtures of the tests of this folder."""

from __future__ import annotations

import pytest

from optdb.opencl import get_context
from optdb.runtime.library import cl
from tests.opencl.simulator.lent import Moved


@pytest.fixture
def moved(monkeypatch):
    moved = Moved(cl.enqueue_copy)
    monkeypatch.setattr(cl, "enqueue_copy", moved)
    return moved


@pytest.fixture
def shares_memory():
    if not get_context("dev0").profile.shares_host_memory:
        pytest.skip("the device has memory of its own")
