"""Theano's test values (``config.compute_test_value``), disabled while optdb builds or rewrites a graph.

With test values on, as in PyMC3, Theano computes every new node from example values, and warns or raises if an input
has none.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from theano import change_flags

from optdb.host.api.config import config
from optdb.refcounting import RefCountedSetting

if TYPE_CHECKING:
    from contextlib import _GeneratorContextManager  # also a decorator


def without_test_values() -> _GeneratorContextManager[None]:
    """Turn test values off while any thread is in the block; the last thread restores the user's setting."""
    return _off.held()


def optimizer_test_values() -> AbstractContextManager[None]:
    """Apply ``config.compute_test_value_opt`` in the block, except within `without_test_values`."""
    if _off.is_held:
        return nullcontext()
    value = config.compute_test_value_opt
    return without_test_values() if value == "off" else change_flags(compute_test_value=value)


def shape_test_values() -> AbstractContextManager[None]:
    """Like `optimizer_test_values`, but accept inputs without test values."""
    if _off.is_held or config.compute_test_value_opt == "off":
        return optimizer_test_values()
    return change_flags(compute_test_value="ignore")


def optional_test_values() -> AbstractContextManager[None]:
    """Compute a new node's test value only if all its inputs have test values."""
    if config.compute_test_value in ("off", "ignore"):
        return nullcontext()
    return change_flags(compute_test_value="ignore")


def copy_test_value(old: Any, new: Any) -> None:
    """Copy the test value of `old`, if it has one, to its replacement `new`."""
    if new is not old and hasattr(old.tag, "test_value"):
        new.tag.test_value = old.tag.test_value


def _set(value: str) -> str:
    before = config.compute_test_value
    config.compute_test_value = value
    return before


_off = RefCountedSetting(lambda: _set("off"), _set)
