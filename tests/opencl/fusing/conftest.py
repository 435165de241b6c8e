"""Fixtures of the tests of fusion."""

from __future__ import annotations

import pytest
import theano


@pytest.fixture(autouse=True)
def on_device(default):
    """Lift to the default context, and hide no failure."""
    with theano.change_flags(on_opt_error="raise"):
        yield
