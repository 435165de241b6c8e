"""Fixtures of the tests of operations."""

from __future__ import annotations

import pytest

from tests.codegen.layouts import context


@pytest.fixture(params=["cpu", "gpu"])
def each_device_kind(request, monkeypatch):
    """Use a processor's kernels, then a GPU's, on the available device."""
    monkeypatch.setattr(context(), "profile", context().profile.as_kind(request.param))
    return request.param
