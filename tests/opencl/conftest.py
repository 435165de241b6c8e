"""Makes two contexts for the tests of this folder: 'dev0' is a device, and 'dev1' is half of it.

If the device cannot be divided (the simulator), 'dev1' is a second context on the whole device.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import pytest

from optdb.opencl import contexts, get_context
from optdb.runtime.devices import find
from optdb.runtime.errors import DeviceError
from tests.opencl_device import SMALLEST_BATCHES


def _half() -> str:
    try:
        find("opencl[1/2]")
    except DeviceError:
        return "opencl"
    return "opencl[1/2]"


@pytest.fixture(autouse=True, scope="session")
def two_contexts():
    for name, spec in {"dev0": "opencl", "dev1": _half()}.items():
        if name not in contexts:
            contexts.register(name, spec)
        context = get_context(name)
        context.options = replace(context.options, batch_thresholds=SMALLEST_BATCHES)


#: Matches messages about device variables; failures without device variables are Theano's own.
_OURS = re.compile("OpenCL|optdb/opencl/")


class _Failures(logging.Handler):
    """A log handler that stores the messages that Theano logs when rewriters fail on device variables."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Store a message."""
        if _OURS.search(record.getMessage()):
            self.messages.append(record.getMessage())


@pytest.fixture(autouse=True)
def no_rewriter_fails():
    """Fail a test if a rewriter fails in it: Theano only logs the failure, and continues with the unchanged graph."""
    failures = _Failures()
    logger = logging.getLogger("theano.gof.opt")
    logger.addHandler(failures)
    yield
    logger.removeHandler(failures)
    assert not failures.messages, "\n".join(failures.messages)


@pytest.fixture
def default():
    """Make 'dev0' the default context during a test."""
    with contexts.as_default("dev0"):
        yield "dev0"


@pytest.fixture
def as_a_processor(monkeypatch):
    """Run the test with the kernels for processors on the available device."""
    context = get_context("dev0")
    monkeypatch.setattr(context, "profile", context.profile.as_kind("cpu"))


@pytest.fixture(params=["cpu", "gpu"])
def each_device_kind(request, monkeypatch):
    """Run the test with the kernels for processors, and then with the kernels for GPUs, on the available device."""
    context = get_context("dev0")
    monkeypatch.setattr(context, "profile", context.profile.as_kind(request.param))
    return request.param
