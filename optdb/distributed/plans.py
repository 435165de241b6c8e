"""What workers are sent: the functions that make up a step (`StepPlan`, `LoosePlan`), and how outputs come together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optdb.host.api.variables import SharedVariable, TensorType
from optdb.host.theano.functions.compiled import Function
from optdb.host.theano.functions.originals import Original, compile_step

__all__ = ["LoosePlan", "OutputReduction", "StepPlan", "loose_plan"]

#: How workers' values of an output become one.
REDUCTIONS = ("mean", "sum", "concatenate")


@dataclass(frozen=True)
class OutputReduction:
    """How one output is put together."""

    #: One of `REDUCTIONS`, or 'whole': all workers have it.
    reduction: str
    #: Its index among the outputs that all workers have, or among those of each worker's own.
    index: int
    #: Along which axis parts are concatenated.
    axis: int = 0


@dataclass
class StepPlan:
    """An exact step; see `optdb.distributed.sharding.cutting`."""

    #: All shared variables of the user's function, in order.
    shared: list[SharedVariable]
    gradients: Function
    results: Function | None
    update: Function
    #: Shared variables that `gradients` leaves the worker's summands in.
    summands: list[SharedVariable]
    #: Those from which `results` and `update` take the sums over all workers, in the same order.
    sums: list[SharedVariable]
    #: Those in which `gradients` leaves what is the same on all workers, and `results` and `update` take.
    carried: list[SharedVariable]
    #: The numbers of summands that are complete together, long before the later ones.
    buckets: list[list[int]]
    #: How often workers wait for each other within `gradients`.
    rounds: int
    #: The indexes of the arguments that are not split.
    same: list[int]
    outputs: list[OutputReduction]


@dataclass
class LoosePlan:
    """A step that each worker makes for itself, on its part of the batch."""

    shared: list[SharedVariable]
    #: Computes the outputs, and next values into `following`.
    propose: Function
    #: Lets the shared variables have the next values.
    accept: Function
    #: Shared variables that are updated to those that hold their next values.
    following: dict[SharedVariable, SharedVariable]
    #: The indexes, in `shared`, of the arrays of floats that are averaged.
    averaged: list[int]
    average_every: int
    outputs: list[OutputReduction] = field(default_factory=list)


def loose_plan(original: Original, reductions: Mapping[int, str], average_every: int) -> LoosePlan:
    """Return the functions by which each worker makes steps of its own.

    Parameters
    ----------
    original : Original
        The user's graph.
    reductions : mapping
        For outputs, by number, 'mean', 'sum' or 'concatenate'; by default a mean.
    average_every : int
        After how many steps the workers' values are averaged.
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
    return LoosePlan(
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
    """Return the outputs of a step from those that all workers have and those of each worker's own.

    Parameters
    ----------
    specs : sequence of OutputReduction
        For each output.
    wholes : sequence
        The values that all workers have.
    parts : sequence of sequences
        For each worker with a part of the batch, its own values.
    lengths : sequence of int
        For each of them, the length of its part.
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
