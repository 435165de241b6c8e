"""An op that checks the lengths that a user declared for an array.

Theano's `SpecifyShape` is unsuitable: it requires the lengths of all axes, and raises AssertionError where `ConvOp`
raises ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from theano.tensor import as_tensor_variable

from optdb.host.api.graph import Apply, Op, Variable


class DeclaredLengths(Op):
    """Checks that an array has the declared lengths, and returns it unchanged; the length None allows any length."""

    __props__ = ("lengths",)
    view_map = {0: [0]}  # noqa: RUF012  (the host's protocol)
    # Calls of this op can be recorded and repeated, because its result is a view and needs no commands.
    repeatable = True
    _f16_ok = True

    def __init__(self, lengths: tuple[int | None, ...]) -> None:
        self.lengths = lengths

    def make_node(self, x: Variable) -> Apply:
        """Return a node whose result has the type of `x`, with one axis for each declared length."""
        if x.type.ndim != len(self.lengths):
            raise TypeError(f"{len(self.lengths)} lengths are declared for an array of {x.type.ndim} axes")
        return Apply(self, [x], [x.type()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Sequence[list[Any]]) -> None:
        """Return the array; raise ValueError if its shape differs from the declared one."""
        (x,) = inputs
        if not self.admits(x.shape):
            raise ValueError(f"expected an array of shape {self.lengths}, as the graph declares, got {tuple(x.shape)}")
        output_storage[0][0] = x

    def admits(self, shape: Sequence[Any]) -> bool:
        """Return whether a shape has the declared lengths."""
        return all(length in (None, actual) for length, actual in zip(self.lengths, shape, strict=True))

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the declared lengths and, for axes without a declared length, the input's lengths."""
        return [
            tuple(
                shapes[0][axis] if n is None else as_tensor_variable(np.int64(n)) for axis, n in enumerate(self.lengths)
            )
        ]


def declare_lengths(x: Variable, lengths: Sequence[int | None]) -> Variable:
    """Return `x` with a check of its lengths; `x` itself if no length is declared."""
    lengths = tuple(None if length is None else int(length) for length in lengths)
    return x if set(lengths) == {None} else DeclaredLengths(lengths)(x)
