"""Rounds of arrays on a device: one op begins to copy vectors to the host, another one waits for them.

What lies between them in the function's order keeps the device busy while the vectors travel: the machine runs the
first op as early as it can, and the second one as late (``optdb.opencl.linking.waiting``). The host waits for events
of all workers' devices, whose vectors lie in pinned memory. It gives the results back to the device without waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.distributed.sharding.collective import Completion, ReductionRound, combined, reducer
from optdb.host.api.graph import Apply, Op, PureOp, Variable
from optdb.opencl.lifting import Inputs, lifts
from optdb.opencl.transfers import as_opencl_variable, record_transfer
from optdb.runtime.arrays import copy, empty
from optdb.runtime.arrivals import Arrival
from optdb.runtime.mirrors import HostMirror

__all__ = ["BeginRound", "EndRound"]


class _OfRound(Op):
    """Base of the ops that make up a round of arrays on a device."""

    __props__ = ("round",)
    #: As `OpenCLKernelBase.repeatable`.
    repeatable = False

    def __init__(self, round_: ReductionRound) -> None:
        self.round = round_

    def __str__(self) -> str:
        return f"{type(self).__name__}{{{self.round}}}"


class BeginRound(_OfRound):
    """Let the other workers have vectors as soon as the device has computed them; do not wait.

    Inputs are those of the `ReductionRound` but for the lengths of pieces. The output is the token.
    """

    begins_wait = True

    def make_node(self, token: Variable, *inputs: Variable) -> Apply:
        """Make a node for vectors on a device."""
        return Apply(self, [token, *inputs], [token.type()])

    def perform(
        self, node: Apply, inputs: Sequence[Any], output_storage: Sequence[list[Any]], params: Any = None
    ) -> None:
        """Begin to copy the vectors to the host."""
        token, *given = inputs
        count = len(self.round.kinds)
        vectors, elements = given[:count], given[count:]
        found = reducer()
        arrays, events = [], []
        for i, vector in enumerate(vectors):
            if not vector.flags.c_contiguous:
                vector = copy(vector)
            mirror = _mirror(node.inputs[1 + i].type.context, found.staging, (self.round, i), vector.dtype, vector.size)
            events.append(mirror.fetch(vector))
            arrays.append(mirror.values)
            record_transfer(self, vector.nbytes)
        found.begin(self.round.number, [*arrays, *elements], Arrival(events))
        output_storage[0][0] = token

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the shape of the token."""
        return [shapes[0]]


class EndRound(_OfRound):
    """Wait for the vectors of all workers that a `BeginRound` has begun to copy; combine them.

    Inputs are the token, the vectors, and the lengths of pieces; outputs are those of the `ReductionRound`.
    """

    ends_wait = True

    def make_node(self, token: Variable, *inputs: Variable) -> Apply:
        """Make a node for vectors on a device."""
        vectors = inputs[: len(self.round.kinds)]
        return Apply(self, [token, *inputs], [token.type(), *(var.type() for var in vectors)])

    def perform(
        self, node: Apply, inputs: Sequence[Any], output_storage: Sequence[list[Any]], params: Any = None
    ) -> None:
        """Wait, and begin to copy the results to the device."""
        token, *given = inputs
        number, kinds = self.round.number, self.round.kinds
        found = reducer()
        lengths = given[len(kinds) :]
        results = found.end(number, lambda received: combined(kinds, received, lengths))
        for i, (cell, result) in enumerate(zip(output_storage[1:], results, strict=True)):
            context = node.outputs[1 + i].type.context
            out = cell[0]
            if out is None or out.shape != result.shape or out.dtype != result.dtype:
                out = cell[0] = empty(context, result.shape, result.dtype)
            mirror = _mirror(context, found.staging, (self.round, i, "result"), result.dtype, result.size)
            mirror.values[...] = result
            mirror.give(out)
            record_transfer(self, result.nbytes)
        output_storage[0][0] = token

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the lengths of the results."""
        return [shapes[0], *self.round.result_shapes(shapes[1 : 1 + len(self.round.kinds)])]


def _mirror(context: Any, staging: dict[Any, Any], key: Any, dtype: np.dtype, size: int) -> HostMirror:
    """Return the vector on the host that is kept under a key."""
    mirror = staging.get(key)
    if mirror is None or not mirror.fits(dtype, size):
        mirror = staging[key] = HostMirror(context, dtype, size)
    return mirror


def _of_floats(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    """Reject rounds with whole numbers, which are on the host."""
    if all(out.type.dtype.startswith("float") for out in outputs[1:]):
        return None
    return "it has sums of whole numbers"


@lifts([ReductionRound], 90, _of_floats)
def lift_round(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a round: one op begins it, another one ends it."""
    assert isinstance(op, ReductionRound)
    token, *given = inputs
    vectors = [as_opencl_variable(given[slot], context_name) for slot in op.vector_slots]
    elements, lengths = ([given[slot] for slot in op.host_slots(offset)] for offset in (2, 1))
    begun = BeginRound(op)(token, *vectors, *elements)
    return EndRound(op).make_node(begun, *vectors, *lengths).outputs


@lifts([Completion], 90)
def lift_completion(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift what says that summands are computed; it gets those on the device."""
    token, *summands = inputs
    return op.make_node(token, *(as_opencl_variable(summand, context_name) for summand in summands)).outputs
