"""What tests of the runtime share."""

from __future__ import annotations

import pytest

from optdb.runtime.context import Context


@pytest.fixture(scope="module")
def context():
    return Context("opencl")
