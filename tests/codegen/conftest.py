"""What tests of operations share."""

from __future__ import annotations

import pytest

from tests.codegen.layouts import context


@pytest.fixture(params=["cpu", "gpu"])
def each_device_kind(request, monkeypatch):
    """Write kernels for a processor, then as for a graphics card, for the device that there is."""
    monkeypatch.setattr(context(), "profile", context().profile.as_kind(request.param))
    return request.param
