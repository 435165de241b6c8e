"""Binds a call's arguments, and divides a batch among workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from optdb.distributed.replica import Part
from optdb.host.api.graph import Variable
from optdb.host.api.variables import TensorType
from optdb.host.theano.functions.originals import CallArgument
from optdb.unknown_names import UnknownName

__all__ = ["axes_of", "bound", "kept", "parts_of"]


def axes_of(arguments: Sequence[CallArgument], axes: Mapping[Any, int | None] | None) -> dict[Variable, int]:
    """Map each argument that is split to the axis along which it is split; by default, arrays are split along axis 0.

    `axes` maps an argument's variable or name to an axis, or to None to send the whole argument to all workers. Raise
    KeyError for an unknown argument, and ValueError if an axis is missing or no argument is split.
    """
    given = dict(axes or {})
    chosen: dict[Variable, int] = {}
    for argument in arguments:
        var = argument.variable
        keys = [key for key in given if key is var or (isinstance(key, str) and key == argument.name)]
        has_rows = isinstance(var.type, TensorType) and var.type.ndim > 0 and not var.type.broadcastable[0]
        axis = given.pop(keys[0]) if keys else (0 if has_rows else None)
        if axis is None:
            continue
        if not isinstance(var.type, TensorType) or not 0 <= axis < var.type.ndim or var.type.broadcastable[axis]:
            raise ValueError(f"the argument {var} cannot be split along axis {axis}: it is {var.type}")
        chosen[var] = axis
    if given:
        names = ", ".join(str(argument.variable) for argument in arguments)
        raise UnknownName(
            f"axes= names {next(iter(given))!r}, which is not an argument of the function; its arguments are: {names}"
        )
    if not chosen:
        raise ValueError(
            "no argument is split, so all workers would compute the same.\n"
            "The cure: name one and its axis, as in DataParallel(step, axes={'x': 0})"
        )
    return chosen


def bound(arguments: Sequence[CallArgument], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the converted values of a call's arguments; raise TypeError for wrong arguments."""
    if len(args) > len(arguments):
        raise TypeError(f"the function takes {len(arguments)} arguments, but {len(args)} were given")
    rest = dict(kwargs)
    values = []
    for i, argument in enumerate(arguments):
        if i < len(args):
            value = args[i]
        elif argument.name in rest:
            value = rest.pop(argument.name)
        elif not argument.required:
            value = argument.default
        else:
            raise TypeError(f"the argument {argument.variable} is missing")
        values.append(_filtered(argument, value))
    if rest:
        raise TypeError(f"the function takes no argument {next(iter(rest))!r}, or it was given twice")
    return values


def _filtered(argument: CallArgument, value: Any) -> Any:
    """Convert a value to the argument's type; errors name the argument."""
    try:
        return argument.variable.type.filter(value, allow_downcast=argument.allow_downcast)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"the argument {argument.variable}: {error}") from error


def parts_of(
    arguments: Sequence[CallArgument], values: Sequence[Any], axes: Mapping[Variable, int], count: int
) -> list[Part]:
    """Divide a batch evenly among workers; raise ValueError if arguments differ in length or have no rows."""
    lengths = {
        argument.variable: value.shape[axes[argument.variable]]
        for argument, value in zip(arguments, values, strict=True)
        if argument.variable in axes
    }
    if len(set(lengths.values())) != 1:
        lengths_named = ", ".join(f"{var} has {length} along axis {axes[var]}" for var, length in lengths.items())
        raise ValueError(
            f"all split arguments must have the same length, but {lengths_named}.\n"
            "The cure: name the axes, with None for arguments that all workers get whole: DataParallel(step, "
            "axes={'x': 1, 'table': None})"
        )
    length = next(iter(lengths.values()))
    if not length:
        raise ValueError("the batch has no rows")
    parts, first = [], 0
    for rank in range(count):
        rows = length // count + (rank < length % count)
        own = [
            _rows(value, axes.get(argument.variable), first, rows)
            for argument, value in zip(arguments, values, strict=True)
        ]
        parts.append(Part(own, rows, first, length))
        first += rows
    return parts


def kept(parts: Sequence[Part], given: Sequence[Part]) -> list[Part]:
    """Copy the arguments in the staged `parts` that staging did not copy; `given` are the parts before staging."""
    copies: dict[int, Any] = {}

    def own(value: Any, before: Any) -> Any:
        if value is not before:
            return value
        if id(value) not in copies:
            copies[id(value)] = np.array(value) if isinstance(value, np.ndarray) else deepcopy(value)
        return copies[id(value)]

    return [
        replace(part, arguments=list(map(own, part.arguments, unstaged.arguments)))
        for part, unstaged in zip(parts, given, strict=True)
    ]


def _rows(value: Any, axis: int | None, first: int, rows: int) -> Any:
    if axis is None:
        return value
    if not rows:
        return None
    return np.ascontiguousarray(value[(*[slice(None)] * axis, slice(first, first + rows))])
