"""Fixtures of the tests of the runtime."""

from __future__ import annotations

import pytest

from tests.opencl_device import new_context


@pytest.fixture(scope="module")
def context():
    return new_context()
