"""Reduction rounds for device arrays: one op starts copies to the host, and a second op reduces all workers' vectors.

Nodes between the two ops keep the device busy during the exchange, so the VM runs the first op as early as possible and
the second op as late as possible (``optdb.opencl.linking.waiting``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.distributed.sharding.collective import MOMENTS, SUM, Completion, ReductionRound, combined, thread_exchange
from optdb.host.api.graph import Apply, Op, PureOp, Variable
from optdb.opencl.lifting import Inputs, lifts
from optdb.opencl.transfers import as_opencl_variable, record_transfer
from optdb.runtime.all_reduce import EnqueueAllReduce, EnqueueGive, ExchangeRound, Moments, VectorSpec
from optdb.runtime.arrays import copy, empty
from optdb.runtime.context import Context
from optdb.runtime.dispatch import enqueue
from optdb.runtime.fetching import EnqueueFetch, StartQueue

__all__ = ["BeginRound", "EndRound"]

#: The maximum number of `ExchangeRound` objects in the cache for each round number; each plan uses its own object.
_MOST_KEPT = 8


class _OfRound(Op):
    """Base class of a reduction round's two ops, which take the inputs of the `ReductionRound` except the token."""

    __props__ = ("round",)
    #: See `OpenCLKernelBase.repeatable`.
    repeatable = True

    def __init__(self, round_: ReductionRound) -> None:
        self.round = round_

    def __str__(self) -> str:
        return f"{type(self).__name__}{{{self.round}}}"

    def make_node(self, *inputs: Variable) -> Apply:
        """Return a node that has one device vector as output for each input vector."""
        return Apply(self, list(inputs), [inputs[slot].type() for slot in self.round.vector_slots])

    def _context(self, node: Apply) -> Context:
        context: Context = node.outputs[0].type.context
        return context

    def _round_of(self, node: Apply, inputs: Sequence[Any]) -> ExchangeRound:
        """Return the thread's `ExchangeRound` that fits the vectors in `inputs`; create one if necessary."""
        specs = _specs(self.round, inputs)
        exchange = thread_exchange()
        kept: list[ExchangeRound] = exchange.staging.setdefault(self.round, [])
        known = next((each for each in kept if each.specs == specs), None)
        if known is None:
            known = ExchangeRound(self._context(node), self.round.number, specs, exchange.member, _reduce)
            kept.append(known)
            del kept[:-_MOST_KEPT]
        return known


class BeginRound(_OfRound):
    """Starts copying vectors to the host as soon as the device has computed them; returns the vectors."""

    begins_wait = True

    def __init__(self, round_: ReductionRound) -> None:
        super().__init__(round_)
        self.view_map = {number: [slot] for number, slot in enumerate(round_.vector_slots)}

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        """Start copying the vectors to the host."""
        round_, queue = self._round_of(node, inputs), self._context(node).queue
        for number, slot in enumerate(self.round.vector_slots):
            vector = inputs[slot] if inputs[slot].flags.c_contiguous else copy(inputs[slot])
            if vector.size:
                out, event = round_.vectors[number], round_.events[number]
                enqueue(EnqueueFetch(queue, out, event, vector.base_data, vector.offset))
            record_transfer(self, vector.nbytes)
            outputs[number][0] = vector
        enqueue(StartQueue(queue))

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the lengths of the vectors."""
        return [shapes[slot] for slot in self.round.vector_slots]


class EndRound(_OfRound):
    """Waits for all workers' vectors, reduces them, and starts copying the results to the device."""

    ends_wait = True

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        """Compute the results."""
        round_, context = self._round_of(node, inputs), self._context(node)
        enqueue(EnqueueAllReduce(context.queue, round_))
        for number, (cell, result) in enumerate(zip(outputs, round_.results, strict=True)):
            out = cell[0]
            if out is None or out.shape != result.shape or out.dtype != result.dtype:
                out = cell[0] = empty(context, result.shape, result.dtype)
            if result.size:
                enqueue(EnqueueGive(context.queue, round_, number, out.base_data, out.offset))
            record_transfer(self, result.nbytes)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the lengths of the results."""
        return self.round.result_shapes([shapes[slot] for slot in self.round.vector_slots])


def _specs(round_: ReductionRound, inputs: Sequence[Any]) -> tuple[VectorSpec, ...]:
    """Return a `VectorSpec` for each vector of a reduction round."""
    vectors = [inputs[slot] for slot in round_.vector_slots]
    shapes = round_.result_shapes([vector.shape for vector in vectors])
    moments = [
        Moments(*(tuple(np.asarray(inputs[slot + offset]).tolist()) for offset in (1, 2))) if kind == MOMENTS else None
        for kind, slot in zip(round_.kinds, round_.vector_slots, strict=True)
    ]
    return tuple(
        VectorSpec(vector.dtype, vector.size, size, pieces)
        for vector, (size,), pieces in zip(vectors, shapes, moments, strict=True)
    )


def _reduce(round_: ExchangeRound) -> None:
    """Reduce the vectors of all workers in Python. If C code has failed, raise an error with the reason."""
    exchange = thread_exchange()
    if round_.is_native:
        exchange.refuse(round_.missing)
    moments = [spec.moments for spec in round_.specs if spec.moments is not None]
    kinds = [SUM if spec.moments is None else MOMENTS for spec in round_.specs]
    counts, lengths = ([np.array(getattr(each, name)) for each in moments] for name in ("counts", "lengths"))
    results = exchange.exchange(
        round_.number, [*round_.vectors, *counts], lambda received: combined(kinds, received, lengths)
    )
    for target, result in zip(round_.results, results, strict=True):
        target[...] = result


def _of_floats(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    """Reject reduction rounds with integers, because integers are on the host."""
    if all(out.type.dtype.startswith("float") for out in outputs[1:]):
        return None
    return "it has sums of integers"


@lifts([ReductionRound], 90, _of_floats)
def lift_round(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a reduction round to the two ops that start and end the round."""
    assert isinstance(op, ReductionRound)
    token, *given = inputs
    for slot in op.vector_slots:
        given[slot] = as_opencl_variable(given[slot], context_name)
    for slot, begun in zip(op.vector_slots, BeginRound(op).make_node(*given).outputs, strict=True):
        given[slot] = begun
    return [token, *EndRound(op).make_node(*given).outputs]


@lifts([Completion], 90)
def lift_completion(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Apply the op that reports completed summands to summands on the device."""
    return op.make_node(*(as_opencl_variable(summand, context_name) for summand in inputs)).outputs
