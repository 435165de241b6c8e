"""These tests need PyTensor: ``make test-pytensor`` runs them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from optdb.runtime.context import Context
from tests.opencl_device import context_with_memory

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


@pytest.fixture(scope="module", params=["host's memory", "own memory"])
def mode(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return a mode of a device that shares the host's memory, or a mode of a device with its own memory."""
    from pytensor.compile.executor import Function
    from pytensor.compile.mode import Mode
    from pytensor.link.basic import Container

    import optdb.pytensor
    from optdb.pytensor import shared_variables

    context = context_with_memory(shares_hosts=request.param == "host's memory")

    class Linker(optdb.pytensor.OpenCLLinker):
        @property
        def context(self) -> Context:
            return context

    calls, value = Function.__call__, Container.value
    yield Mode(Linker(), optdb.pytensor.OPENCL.provided_optimizer)
    Function.__call__, Container.value, Container.data = calls, value, value
    shared_variables.let_hosts_fetch.cache_clear()
