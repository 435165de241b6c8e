"""Records the arguments that a library passes to theano.function, instead of compiling the function."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import numpy as np
import theano
from theano.gof.graph import Variable

from profiles.models import Model


def captured(name: str, compile_function: Callable[[], object], data: list[np.ndarray]) -> Model:
    """Return the function that a library is about to compile, as a model."""
    with mock.patch.object(theano, "function") as function:
        compile_function()
    return from_call(name, data, *function.call_args.args, **function.call_args.kwargs)


def from_call(
    name: str,
    data: list[np.ndarray],
    inputs: Iterable[Variable],
    outputs: Any = None,
    updates: Any = (),
    givens: Any = (),
    **options: Any,
) -> Model:
    """Return a model with the inputs, outputs and updates that a call of theano.function was given."""
    unexpected = set(options) - {"mode", "name", "profile", "on_unused_input", "allow_input_downcast"}
    if unexpected:
        raise TypeError(f"{name}: theano.function was called with {', '.join(sorted(unexpected))}")
    results = [] if outputs is None else list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    changes = unique_updates(updates)
    replace = OrderedDict(givens.items() if hasattr(givens, "items") else givens)
    if replace:
        cloned = theano.clone([*results, *changes.values()], replace=replace)
        results, values = cloned[: len(results)], cloned[len(results) :]
        changes = OrderedDict(zip(changes, values))
    return Model(name, list(inputs), results, changes, data)


def unique_updates(updates: Any) -> OrderedDict:
    """Return the first update of each variable, because libraries list some variables twice."""
    unique: OrderedDict = OrderedDict()
    for variable, value in updates.items() if hasattr(updates, "items") else updates:
        unique.setdefault(variable, value)
    return unique
