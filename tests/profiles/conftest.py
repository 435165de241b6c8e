"""What tests of the profiles share: they are timed apart from what other tests have left behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def unwalked_heap() -> Iterator[None]:
    """Leave the objects of other tests out of collections: each timed call begins with one, which takes a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
