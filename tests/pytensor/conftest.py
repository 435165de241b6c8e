"""These tests need PyTensor: ``make test-pytensor`` runs them."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("pytensor") else ["test_*.py"]


@pytest.fixture(autouse=True)
def host_linker(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Make the host run nodes with the Python linker, which compiles nothing, or with the linkers that a test names."""
    from optdb.pytensor import host_groups

    names = getattr(request, "param", ["py"])
    monkeypatch.setattr(host_groups, "linkers", lambda: iter(names))


@pytest.fixture(autouse=True)
def small_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let loops run on all devices even if they have little work."""
    from optdb.pytensor import loops

    monkeypatch.setattr(loops, "LEAST_WORK", 0)
