"""Fixtures of the tests of fuzzers."""

from __future__ import annotations

import pytest

from optdb.opencl import get_context
from optdb.opencl.registry import context_of
from optdb.runtime.context import Context


@pytest.fixture
def own_profile(monkeypatch: pytest.MonkeyPatch) -> Context:
    """Restore the device's own profile, options and kernels after the test; return its context."""
    context = get_context(context_of())
    monkeypatch.setattr(context, "profile", context.profile)
    monkeypatch.setattr(context, "options", context.options)
    monkeypatch.setattr(context, "kept", {})
    return context
