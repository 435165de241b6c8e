"""The functions that workers run in a step, and the combination of the workers' outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optdb.host.api.variables import SharedVariable, TensorType
from optdb.host.theano.functions.compiled import Function
from optdb.host.theano.functions.originals import Original, compile_step

__all__ = [
    "LocalTraining",
    "OutputReduction",
    "SynchronousTraining",
    "checked_reductions",
    "local_training",
    "put_together",
]

#: The names of the reductions that combine the workers' values for an output.
REDUCTIONS = ("mean", "sum", "concatenate")


def checked_reductions(outputs: Mapping[int, str] | Sequence[str | None] | None, count: int) -> dict[int, str]:
    """Return a dict from output indices to reductions; raise `ValueError` if a reduction or an index is invalid."""
    pairs = outputs.items() if isinstance(outputs, Mapping) else enumerate(outputs or ())
    reductions = {number: reduction for number, reduction in pairs if reduction is not None}
    for number, reduction in reductions.items():
        if reduction not in REDUCTIONS:
            raise ValueError(
                f"outputs={{{number}: {reduction!r}}}: the reduction must be one of {', '.join(map(repr, REDUCTIONS))}"
            )
        if not 0 <= number < count:
            raise ValueError(f"outputs= names output {number}, but the function has {count} outputs, counted from 0")
    return reductions


@dataclass(frozen=True)
class OutputReduction:
    """Describes how the workers' values for one output are combined."""

    #: One of `REDUCTIONS`, or 'whole' if the value is equal on all workers.
    reduction: str
    #: The output's index among the outputs that are equal on all workers if `reduction` is 'whole', else among each
    #: worker's own outputs.
    index: int
    #: The axis along which parts are concatenated.
    axis: int = 0


@dataclass
class SynchronousTraining:
    """The functions for exact steps; see `optdb.distributed.sharding.cutting`."""

    #: All shared variables in the user's function, in order.
    shared: list[SharedVariable]
    gradients: Function
    results: Function | None
    update: Function
    #: Shared variables in which `gradients` stores the worker's summands.
    summands: list[SharedVariable]
    #: Shared variables from which `results` and `update` read the sums over all workers, in the order of `summands`.
    sums: list[SharedVariable]
    #: Shared variables that pass other values from `gradients` to `results` and `update`; these values are equal on all
    #: workers.
    carried: list[SharedVariable]
    #: Groups of indices of summands, in the order in which the groups are completed.
    buckets: list[list[int]]
    #: The number of times that workers wait for each other within `gradients`.
    rounds: int
    #: The indices of the arguments that are not split.
    same: list[int]
    outputs: list[OutputReduction]


@dataclass
class LocalTraining:
    """The functions for local SGD: workers run independent steps, and regularly average shared variables."""

    shared: list[SharedVariable]
    #: The function that computes the outputs and stores next values in the shared variables in `following`.
    propose: Function
    #: The function that copies the next values to the user's shared variables.
    accept: Function
    #: Maps updated shared variables to the shared variables that hold their next values.
    following: dict[SharedVariable, SharedVariable]
    #: The indices in `shared` of the floating-point arrays that are averaged.
    averaged: list[int]
    average_every: int
    outputs: list[OutputReduction] = field(default_factory=list)


def local_training(original: Original, reductions: Mapping[int, str], average_every: int) -> LocalTraining:
    """Return the functions for independent steps; shared variables are averaged every `average_every` steps.

    `reductions` maps an output's index to 'mean' (the default), 'sum' or 'concatenate'.
    """
    following = {}
    for shared in original.updates:
        copy = shared.clone()
        copy.container = type(shared.container)(shared.type, [shared.get_value(borrow=False)], name=shared.name)
        copy.name = f"next {shared.name}"
        following[shared] = copy
    arguments = [argument.variable for argument in original.arguments]
    name, optimizer = original.name or "step", original.optimizer
    updates = {following[shared]: var for shared, var in original.updates.items()}
    averaged = [i for i, shared in enumerate(original.shared) if shared in following and _is_float_array(shared)]
    specs = [OutputReduction(reductions.get(i, "mean"), i) for i in range(len(original.outputs))]
    return LocalTraining(
        original.shared,
        compile_step(arguments, original.outputs, updates, optimizer, f"{name}: local step", borrow=False),
        compile_step([], [], following, optimizer, f"{name}: next values"),
        following,
        averaged,
        average_every,
        specs,
    )


def _is_float_array(shared: SharedVariable) -> bool:
    return isinstance(shared.type, TensorType) and shared.type.dtype.startswith(("float", "complex"))


def put_together(
    specs: Sequence[OutputReduction], wholes: Sequence[Any], parts: Sequence[Sequence[Any]], lengths: Sequence[int]
) -> list[Any]:
    """Combine the values from all workers into a step's outputs.

    `wholes` are the values that are equal on all workers. `parts` contains, for each worker that has a part of the
    batch, the worker's own values, and `lengths` contains the lengths of these parts of the batch.
    """
    return [
        wholes[spec.index] if spec.reduction == "whole" else _reduced(spec, [own[spec.index] for own in parts], lengths)
        for spec in specs
    ]


def _reduced(spec: OutputReduction, values: Sequence[np.ndarray], lengths: Sequence[int]) -> np.ndarray:
    if spec.reduction == "concatenate":
        return np.concatenate([np.atleast_1d(value) for value in values], axis=spec.axis)
    if spec.reduction == "sum":
        return np.sum(values, axis=0, dtype=values[0].dtype)
    total = sum(lengths)
    mean = sum(np.asarray(value, "float64") * (count / total) for value, count in zip(values, lengths, strict=True))
    dtype = values[0].dtype if values[0].dtype.kind in "fc" else "float64"
    return np.asarray(mean, dtype)
