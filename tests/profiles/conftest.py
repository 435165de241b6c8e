"""Fixtures of the tests of profiles/, in which measured times must not depend on objects of other tests."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent
#: Whether the objects of other tests are excluded from garbage collections.
_IS_FROZEN = pytest.StashKey[bool]()

# Each timed call begins with a garbage collection, which takes seconds with the objects of other tests. These objects,
# including garbage, are excluded from collections while tests of this folder run in sequence.


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Exclude the objects of other tests from garbage collections."""
    if not item.config.stash.get(_IS_FROZEN, False):
        gc.freeze()
        item.config.stash[_IS_FROZEN] = True


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Before a test of another folder, include the objects in garbage collections again."""
    if nextitem is None or _FOLDER not in nextitem.path.parents:
        gc.unfreeze()
        item.config.stash[_IS_FROZEN] = False
