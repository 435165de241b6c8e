"""What tests of the profiles share: they are timed apart from what other tests have left behind."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent
#: Whether the objects of other tests are left out of collections.
_IS_FROZEN = pytest.StashKey[bool]()

# Each timed call begins with a collection, which takes seconds where other tests have left their objects. They are left
# out, garbage among them, for all tests of this folder that run one after the other.


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave the objects of other tests out of collections."""
    if not item.config.stash.get(_IS_FROZEN, False):
        gc.freeze()
        item.config.stash[_IS_FROZEN] = True


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Take them in again before a test of another folder."""
    if nextitem is None or _FOLDER not in nextitem.path.parents:
        gc.unfreeze()
        item.config.stash[_IS_FROZEN] = False
