"""What tests of the fuzzers share."""

from __future__ import annotations

import pytest

from optdb.codegen.gemm import copied, quad_tiles, warpgroups
from optdb.opencl import get_context
from optdb.opencl.registry import context_of
from optdb.runtime.context import Context


@pytest.fixture
def own_profile(monkeypatch: pytest.MonkeyPatch) -> Context:
    """Let the device have its own profile, and products their own kernels, after the test; return its context."""
    context = get_context(context_of())
    monkeypatch.setattr(context, "profile", context.profile)
    monkeypatch.setattr(context, "kept", {})
    monkeypatch.setattr(quad_tiles, "_classes", {*quad_tiles._classes})
    for emulated, own in ((copied.copies, copied.Copies()), (warpgroups.choice, warpgroups.PackedChoice())):
        for name, value in vars(own).items():
            monkeypatch.setattr(emulated, name, value)
    return context
