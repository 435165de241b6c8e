"""AllReduce: an op of the host whose results are the sums of its inputs over all workers.

The op knows its number and nothing of workers. What computes it is the thread's `Exchange` (``taking_part``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from optdb.host.api.graph import Apply, Op, Variable

__all__ = ["AllReduce", "Reducer", "taking_part"]


class Reducer(Protocol):
    """Adds up arrays of all workers."""

    def all_reduce(self, number: int, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the sums of the arrays of all workers; `number` is the same in all of them."""


_thread = threading.local()


@contextmanager
def taking_part(reducer: Reducer) -> Iterator[None]:
    """Let what this thread computes within the block be one worker's part."""
    _thread.reducer = reducer
    try:
        yield
    finally:
        _thread.reducer = None


class AllReduce(Op):
    """Sums of arrays over all workers.

    Inputs are a token and arrays; outputs are a token, and the sums. The token of one op is the input of the next one,
    so that all workers have the same order. It is a float array, and always 0.
    """

    __props__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def make_node(self, token: Variable, *arrays: Variable) -> Apply:
        """Make a node; the sums have the types of the arrays."""
        return Apply(self, [token, *arrays], [token.type(), *(var.type() for var in arrays)])

    def perform(self, node: Apply, inputs: list[Any], outputs: list[list[Any]], params: Any = None) -> None:
        """Wait for the other workers' arrays; add them all up."""
        reducer = getattr(_thread, "reducer", None)
        if reducer is None:
            raise RuntimeError(
                "a sum over workers was computed outside of a training step.\n"
                "The cure: call the DataParallel object, and not its parts"
            )
        token, *arrays = inputs
        outputs[0][0] = token
        for cell, total in zip(outputs[1:], reducer.all_reduce(self.number, arrays), strict=True):
            cell[0] = total

    def infer_shape(self, node: Apply, shapes: list[Any]) -> list[Any]:
        """Return the shapes of the inputs: sums have the same."""
        return shapes
