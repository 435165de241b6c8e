"""Ops for sums and moments over all workers: placeholders, and the host op that replaces them.

While one worker's graph is built, an `AllReduce` represents a sum, and a `MergeMoments` represents a mean and a
variance. A `ReductionRound` then replaces a set of independent placeholders, so that workers wait only once for the
set.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.host.api.graph import Apply, Op, Variable
from optdb.host.theano.functions.channel_statistics import NUMBERS

if TYPE_CHECKING:
    from optdb.distributed.exchange import Exchange

__all__ = [
    "MOMENTS",
    "SUM",
    "AllReduce",
    "Completion",
    "MergeMoments",
    "ReductionRound",
    "combined",
    "taking_part",
    "thread_exchange",
]

#: The names of the two reductions over the vectors of all workers.
SUM, MOMENTS = "sum", "moments"
#: The number of results per channel when moments are computed.
GOT = 2

_thread = threading.local()


@contextmanager
def taking_part(exchange: Exchange) -> Iterator[None]:
    """Make this thread's reduction rounds within the block exchange their vectors through `exchange`."""
    _thread.exchange = exchange
    try:
        yield
    finally:
        _thread.exchange = None


def thread_exchange() -> Exchange:
    """Return the `Exchange` of the thread's step; raise RuntimeError outside a step."""
    found: Exchange | None = getattr(_thread, "exchange", None)
    if found is None:
        raise RuntimeError(
            "a sum over workers was computed outside of a training step.\n"
            "The cure: call the DataParallel object, not its parts"
        )
    return found


class _Mark(Op):
    """Base class of placeholder ops, which `ReductionRound` ops replace before the graph is compiled."""

    __props__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        """Raise an error."""
        raise RuntimeError(f"{self} is a placeholder that an all-reduce replaces, and cannot be computed")


class AllReduce(_Mark):
    """The sum of an array over all workers."""

    def make_node(self, summand: Variable) -> Apply:
        """Return a node whose output has the type of its input."""
        return Apply(self, [summand], [summand.type()])


class MergeMoments(_Mark):
    """The mean and variance of each channel over all workers, from the workers' element counts and `ChannelMoments`."""

    def make_node(self, count: Variable, moments: Variable) -> Apply:
        """Return a node; its output is a vector of all means, followed by all variances."""
        return Apply(self, [count, moments], [moments.type()])


class ReductionRound(Op):
    """Reduces the vectors of all workers, with the reductions in `kinds`.

    The inputs are a token and, for each kind, a vector. A vector of moments is followed by two more inputs: the lengths
    of the pieces packed into it, and each piece's number of elements per channel. The outputs are a token and, for each
    kind, a vector of sums, or of means followed by variances. Each round takes the token of the previous round, so that
    all workers run the rounds in the same order.
    """

    __props__ = ("number", "kinds")

    def __init__(self, number: int, kinds: Sequence[str]) -> None:
        self.number, self.kinds = number, tuple(kinds)

    def make_node(self, token: Variable, *inputs: Variable) -> Apply:
        """Return a node whose results have the types of the vectors."""
        vectors = [inputs[slot] for slot in self.vector_slots]
        return Apply(self, [token, *inputs], [token.type(), *(var.type() for var in vectors)])

    @property
    def vector_slots(self) -> list[int]:
        """The positions of the vectors among the inputs, counted after the token."""
        slots, slot = [], 0
        for kind in self.kinds:
            slots.append(slot)
            slot += 3 if kind == MOMENTS else 1
        return slots

    def host_slots(self, offset: int) -> list[int]:
        """Return which inputs after the token hold piece lengths (`offset` 1) or element counts (`offset` 2)."""
        return [slot + offset for slot, kind in zip(self.vector_slots, self.kinds, strict=True) if kind == MOMENTS]

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        """Wait for the other workers' vectors and reduce all vectors."""
        token, *given = inputs
        vectors = [np.asarray(given[slot]) for slot in self.vector_slots]
        exchange = thread_exchange()
        if MOMENTS in self.kinds:
            counts, lengths = ([given[slot] for slot in self.host_slots(offset)] for offset in (2, 1))
            results = exchange.exchange(
                self.number, [*vectors, *counts], lambda received: combined(self.kinds, received, lengths)
            )
        else:
            results = exchange.all_reduce(self.number, vectors)
        outputs[0][0] = token
        for cell, result in zip(outputs[1:], results, strict=True):
            cell[0] = np.asarray(result)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the lengths of the results."""
        return [shapes[0], *self.result_shapes([shapes[1 + slot] for slot in self.vector_slots])]

    def result_shapes(self, shapes: Sequence[Any]) -> list[Any]:
        """Return the shapes of the results, given the shapes of the vectors."""
        pairs = zip(self.kinds, shapes, strict=True)
        return [(length // NUMBERS * GOT if kind == MOMENTS else length,) for kind, (length,) in pairs]


class Completion(Op):
    """Reports that the summands in a bucket are computed, so that they can be sent early; returns the summands."""

    __props__ = ("bucket",)
    #: See `optdb.opencl.linking.waiting`.
    begins_copy = True
    #: See `OpenCLKernelBase.repeatable`.
    repeatable = True

    def __init__(self, bucket: int, count: int) -> None:
        self.bucket = bucket
        self.view_map = {number: [number] for number in range(count)}

    def make_node(self, *summands: Variable) -> Apply:
        """Make a node."""
        return Apply(self, list(summands), [summand.type() for summand in summands])

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        """Notify the thread's `Exchange`."""
        for cell, summand in zip(outputs, inputs, strict=True):
            cell[0] = summand
        thread_exchange().completed(self.bucket, inputs)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the shapes of the summands."""
        return list(shapes)


def combined(
    kinds: Sequence[str], received: Sequence[Sequence[np.ndarray]], lengths: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Compute a reduction round's results from the vectors of all workers.

    `received` lists, by rank, each worker's vectors, followed by the element counts of the pieces in each vector of
    moments. `lengths` lists the lengths of the pieces.
    """
    results, pieces = [], iter(range(len(kinds), len(received[0])))
    of_moments = iter(lengths)
    for number, kind in enumerate(kinds):
        vectors = [arrays[number] for arrays in received]
        if kind == SUM:
            results.append(_sum(vectors))
            continue
        piece = next(pieces)
        results.append(_merged(vectors, [arrays[piece] for arrays in received], next(of_moments)))
    return results


def _sum(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sum of vectors, added in the given order."""
    total = vectors[0].copy() if len(vectors) == 1 else vectors[0] + vectors[1]
    for vector in vectors[2:]:
        total += vector
    return total


def _merged(vectors: Sequence[np.ndarray], counts: Sequence[np.ndarray], lengths: np.ndarray) -> np.ndarray:
    """Merge all workers' moments for each piece in a vector."""
    found, start = [], 0
    for piece, length in enumerate(lengths.tolist()):
        of_piece = [vector[start : start + length] for vector in vectors]
        found += _merged_moments(of_piece, [float(elements[piece]) for elements in counts])
        start += length
    return np.concatenate(found).astype(vectors[0].dtype)


def _merged_moments(vectors: Sequence[np.ndarray], counts: Sequence[float]) -> list[np.ndarray]:
    """Return means and variances over all workers' elements (Chan, Golub and LeVeque, 1979), in double precision."""
    seen = 0.0
    mean = squares = np.zeros(())
    with np.errstate(all="ignore"):  # infinities and NaN propagate to the results
        for vector, more in zip(vectors, counts, strict=True):
            own_mean, rest, own_squares = vector.astype("float64").reshape(NUMBERS, -1)
            own_mean += rest
            if not seen:
                seen, mean, squares = more, own_mean, own_squares
                continue
            off, total = own_mean - mean, seen + more
            squares = squares + own_squares + off * off * (seen * more / total)
            together = own_mean * (more / total) + mean * (seen / total)  # used as the mean if `off` is not finite
            mean, seen = np.where(np.isfinite(off), mean + off * (more / total), together), total
        return [mean, squares / np.float64(seen)]
