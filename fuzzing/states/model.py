"""Computes the effect of a call in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fuzzing.states.expressions import Kind, apply_numpy
from fuzzing.states.specs import ARGUMENT, Expression, Spec

__all__ = ["Model", "contents"]


def contents(kind: Kind, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return an array of small integers; equal seeds give equal arrays."""
    return np.asarray(np.random.RandomState(seed).randint(0, 4, shape), kind.dtype)


@dataclass(frozen=True)
class Model:
    """Computes calls of one function in NumPy; shared variables in `defaults` have a default update that adds one."""

    spec: Spec
    kinds: Sequence[Kind]
    defaults: frozenset[int]

    def call(
        self, values: Mapping[int, np.ndarray], argument: np.ndarray, index: int
    ) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
        """Return the results and the next values of a call; raise NumPy's errors, or `Undefined`. Change nothing."""
        spec = self.spec
        argument_kind = self.kinds[spec.argument]

        def value(expression: Expression) -> np.ndarray:
            leaf = spec.leaf(expression)
            kind = argument_kind if leaf == ARGUMENT else self.kinds[leaf]
            start = argument if leaf == ARGUMENT else values[leaf]
            return apply_numpy(expression.operations, start, kind, argument, index)

        results = [value(output.expression) for output in spec.outputs]
        results = [
            np.asarray(result.astype("float32") * np.float32(2)) if output.as_float else result
            for result, output in zip(results, spec.outputs)
        ]
        following = {k: value(source) for k, source in spec.updates}
        for k in self.defaulted:
            following[k] = apply_numpy(("plus_one",), values[k], self.kinds[k], argument, index)
        return results, following

    @property
    def defaulted(self) -> set[int]:
        """The numbers of the shared variables that a call sets by their default update."""
        if not self.spec.default_updates:
            return set()
        return self.spec.used() & self.defaults - {k for k, _ in self.spec.updates}

    @property
    def written(self) -> set[int]:
        """The numbers of the shared variables that a call updates."""
        return {k for k, _ in self.spec.updates} | self.defaulted
