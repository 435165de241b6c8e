"""A device's tuning table: the seconds or rates that `tune` measured for each choice, keyed by problem class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optdb import __version__
from optdb.runtime import tuning

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Maps a problem class and a choice to the measurements.
Rows = Mapping[str, Mapping[str, Sequence[float]]]


def measured(context: Context, problems: str) -> Mapping[str, Sequence[float]]:
    """Return the measurements for each choice in a problem class; empty if there are none."""
    kept: dict[str, Rows] = context.kept.setdefault(__name__, {})
    kind = context.profile.device_kind
    if kind not in kept:
        kept.setdefault(kind, _from_disk(context))
    return kept[kind].get(problems, {})


def record(context: Context, rows: Rows) -> None:
    """Replace the rows for some classes, in memory and on disk; raise OSError if they cannot be saved.

    A class without choices is removed.
    """
    table = {name: choices for name, choices in {**_from_disk(context), **rows}.items() if choices}
    if table:
        tuning.save(key_of(context), table)
    else:
        tuning.forget(key_of(context))
    context.kept.setdefault(__name__, {})[context.profile.device_kind] = table


def key_of(context: Context) -> dict[str, Any]:
    """Return the key under which the table is saved."""
    return tuning.key_of(context.device, "products", context.profile.device_kind, __version__)


def _from_disk(context: Context) -> Rows:
    """Return the valid rows on disk: those whose numbers are all positive and finite."""
    stored = tuning.load(key_of(context)) or {}
    tables = {name: choices for name, choices in stored.items() if isinstance(choices, dict)}
    return {
        name: {choice: numbers for choice, numbers in choices.items() if _is_valid(numbers)}
        for name, choices in tables.items()
    }


def _is_valid(numbers: Any) -> bool:
    is_list = isinstance(numbers, list) and len(numbers) > 0
    return is_list and all(isinstance(number, (int, float)) and 0 < number < math.inf for number in numbers)
