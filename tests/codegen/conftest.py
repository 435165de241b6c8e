"""Fixtures of the tests of operations."""

from __future__ import annotations

import pytest

from tests.codegen.layouts import context


@pytest.fixture(params=["cpu", "gpu"])
def each_device_kind(request, monkeypatch):
    """Run the test with the kernels for processors, and then with the kernels for GPUs, on the available device."""
    monkeypatch.setattr(context(), "profile", context().profile.as_kind(request.param))
    return request.param
