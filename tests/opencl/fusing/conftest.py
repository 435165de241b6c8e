"""Fixtures of the tests of fusion."""

from __future__ import annotations

import pytest
import theano


@pytest.fixture(autouse=True)
def on_device(default):
    """Lift to the default context, and raise the errors of failing rewriters."""
    with theano.change_flags(on_opt_error="raise"):
        yield
