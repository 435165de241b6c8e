"""Checks whether two optimized graphs of a model compute the same values.

The error of a number is ``|a - b| / max(|a|, |b|, FLOOR * largest)``, where ``largest`` is the largest finite magnitude
in the array. The error of a number that cancellation made small is therefore relative to larger numbers.

Some models amplify rounding errors: Adam, for instance, divides each gradient by its magnitude, even if the gradient is
only a rounding error. A larger error is therefore accepted if the baseline's own values change almost as much when all
floats of its inputs are nudged by one unit in the last place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import theano
from theano.compile.function_module import insert_deepcopy
from theano.compile.io import SymbolicOutput

from profiles import measure
from profiles.interpret import Interpreter
from profiles.measure import Measurement, Specification
from profiles.training import CHAOS, nudged
from profiles.ways import Way

FLOOR = 1e-2

TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "float16": 1e-2}
"""Largest error that is accepted, by dtype; all other dtypes have to agree exactly."""


@dataclass(frozen=True)
class Agreement:
    """Whether values agree, and the error of the array that differs most; the error is infinite if shapes differ."""

    agree: bool
    error: float
    where: str


def evaluate(
    specification: Specification,
    measurement: Measurement,
    way: Way,
    change: Callable[[Any], Any] = copy.deepcopy,
) -> dict[str, np.ndarray]:
    """Run the optimized graph of a measurement once, and return the values of its outputs and updates by name.

    The graph cannot be used again. The optimizer `way` also optimizes the inner graphs of loops. `change` takes the
    value of an input and returns the value to use, which the graph may overwrite.
    """
    graph = measurement.graph
    assert graph is not None  # only the last measurement of each way keeps its graph
    updated = [(spec, spec.update) for spec in specification.inputs if spec.update is not None]
    outputs = [*specification.outputs, *(SymbolicOutput(update) for _, update in updated)]
    with way.context(), np.errstate(all="ignore"), theano.change_flags(compute_test_value="off"):
        insert_deepcopy(graph, specification.inputs, outputs)
        run, cells, results = Interpreter().accept(graph).make_thunk()
        data = iter(specification.model.data)
        for spec, cell in zip(specification.inputs, cells):
            cell.storage[0] = change(spec.value.storage[0] if spec.shared else next(data))
        run()

    names = [f"output {position}" for position in range(len(specification.outputs))]
    names += [f"update {position} ({spec.variable.name})" for position, (spec, _) in enumerate(updated)]
    return {name: np.array(result.storage[0]) for name, result in zip(names, results)}


def of_nudged_inputs(specification: Specification, way: Way) -> dict[str, np.ndarray]:
    """Change the floats of all inputs by one unit in the last place; return the graph's values by name."""

    def change(value: Any) -> Any:
        return nudged(copy.deepcopy(value), seed=0, units=1)

    return evaluate(specification, measure.optimize(specification, way), way, change)


def compare(
    expected: dict[str, np.ndarray], found: dict[str, np.ndarray], of_nudged: dict[str, np.ndarray] | None = None
) -> Agreement:
    """Compare two results of `evaluate`; `of_nudged` is the baseline's result for inputs with nudged floats."""
    agree, worst, where = expected.keys() == found.keys(), 0.0, "nowhere"
    for name in (name for name in expected if name in found):
        error = largest_error(expected[name], found[name])
        allowed = TOLERANCE.get(str(expected[name].dtype), 0.0)
        if of_nudged is not None and error > allowed:
            allowed = max(allowed, CHAOS * largest_error(expected[name], of_nudged[name]))
        agree = agree and error <= allowed
        if error > worst:
            worst, where = error, name
    return Agreement(agree, worst, where)


def largest_error(expected: np.ndarray, found: np.ndarray) -> float:
    """Return the largest error of any number of an array, as defined in the module's docstring."""
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return float("inf")
    if not expected.size:
        return 0.0
    if expected.dtype.kind not in "fc":
        return 0.0 if np.array_equal(expected, found) else float("inf")

    finite = np.isfinite(expected)
    if not np.array_equal(expected[~finite], found[~finite], equal_nan=True) or not np.isfinite(found[finite]).all():
        return float("inf")
    a, b = expected[finite].astype("complex128"), found[finite].astype("complex128")
    magnitude = np.maximum(np.abs(a), np.abs(b))
    scale = np.maximum(magnitude, FLOOR * magnitude.max(initial=0.0))
    difference = np.abs(a - b)
    return float(np.divide(difference, scale, out=np.zeros_like(difference), where=difference > 0).max(initial=0.0))
