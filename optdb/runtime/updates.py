"""Finds out how the next values of updated arrays are written over the present ones.

An array that a function updates stays in its buffer, so that what uses it need not be rebound. So its next value is
written over the present one, at the end, unless it was computed there. Other values that lie there, such as a result
that is the present value, are copied elsewhere first. :func:`find_commit` decides which, for calls, plans and traces.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

__all__ = ["Commit", "find_commit"]


class Commit(NamedTuple):
    """What is done at the end of a call."""

    written: list[Any]  #: The keys of the updates whose next values are written over the present ones.
    aliased: list[Any]  #: The keys of the values that lie there, and are copied first.


def find_commit(
    updates: Iterable[tuple[Any, Any, Any]],
    values: Iterable[tuple[Any, Any]],
    buffer_of: Callable[[Any], Hashable | None],
    is_in_place: Callable[[Any, Any], bool],
) -> Commit:
    """Find which next values are to be written, and which values are to be copied before.

    Parameters
    ----------
    updates : iterable of (key, array, value)
        What is updated, with its present and its next value.
    values : iterable of (key, value)
        What is needed after the updates: the results, and the next values themselves.
    buffer_of : callable
        Returns what stands for the buffer that a value lies in; None if it lies in none.
    is_in_place : callable
        Whether a next value, its second argument, need not be written over the present one.
    """
    moved = [(key, present) for key, present, following in updates if not is_in_place(present, following)]
    overwritten = {buffer_of(present) for _, present in moved} - {None}
    aliased = [key for key, value in values if buffer_of(value) in overwritten] if overwritten else []
    return Commit([key for key, _ in moved], aliased)
