"""The rule for Scan.

Workers cannot wait for each other within a loop. Each worker therefore keeps its own part of a sum in a loop, such as
the gradient of a recurrent weight. The workers' parts of the sum are all-reduced after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from optdb.distributed.errors import NotSplittable
from optdb.distributed.sharding.layouts import Own, Partial, Replicated, Sharded, Value, with_layout_of
from optdb.distributed.sharding.spreading import Spreader, remade, rule
from optdb.host.api.control_flow import Scan, scan_of
from optdb.host.api.graph import Apply, Variable


@rule(Scan)
def loop(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Return the values of a loop's outputs."""
    return _Loop(spreader, node, inputs).results()


class _Loop:
    """Applies rules to the inner graph of a loop until the layouts of its states are stable.

    The layout of a state is the layout of the outer array, whose axis 0 holds the values of the state in all steps.
    """

    def __init__(self, spreader: Spreader, node: Apply, inputs: list[Value]) -> None:
        self._spreader, self._node = spreader, node
        self._op = op = scan_of(node)
        if len(op.outer_shared(node.inputs)):
            self._refuse("the loop has shared variables as states")
        self._steps = spreader.whole(inputs[0], node)
        self._sequences = op.outer_seqs(inputs)
        self._states = [*op.outer_mitmot(inputs), *op.outer_mitsot(inputs), *op.outer_sitsot(inputs)]
        self._lengths = spreader.wholes(op.outer_nitsot(inputs), node)
        self._rest = list(op.outer_non_seqs(inputs))
        for i, value in enumerate(self._rest):
            if not isinstance(value, Replicated | Sharded | Partial):
                self._rest[i] = spreader.whole(value, node)

    def _refuse(self, reason: str) -> NoReturn:
        raise NotSplittable(self._node, reason)

    def results(self) -> list[Value]:
        """Return the values of the loop's outputs."""
        for _ in range(2 * len(self._states) + 2):
            inner = self._inner_layouts()
            following = self._following(inner)
            states = [self._joined(old, new) for old, new in zip(self._states, following, strict=True)]
            if states == self._states:
                return self._outer(inner)
            self._states = states
        self._refuse("the layouts of its states change from step to step")

    def _inner_layouts(self) -> dict[Variable, Value]:
        """Return the value of each variable in the inner graph."""
        op = self._op
        values: dict[Variable, Value] = {}
        for inner, outer in zip(op.inner_seqs(op.inputs), self._sequences, strict=True):
            values[inner] = self._within(inner, outer)
        inner_states = [*op.inner_mitmot(op.inputs), *op.inner_mitsot(op.inputs), *op.inner_sitsot(op.inputs)]
        taps = [*op.mitmot_taps(), *op.mitsot_taps(), *([-1] for _ in op.outer_sitsot(self._node.inputs))]
        owners = [state for state, own in zip(self._states, taps, strict=True) for _ in own]
        for inner, outer in zip(inner_states, owners, strict=True):
            values[inner] = self._within(inner, outer)
        for inner, outer in zip(op.inner_non_seqs(op.inputs), self._rest, strict=True):
            values[inner] = with_layout_of(outer, inner)
        outside = self._spreader
        spreader = Spreader({}, outside.length, outside.first, in_loop=True, own_length=outside.own_length)
        spreader.values.update(values)
        outputs = list(op.outputs)
        for var, value in zip(outputs, spreader.spread(outputs), strict=True):
            if value.var is not var:
                self._refuse(f"in a loop, {var} depends on the length of the batch")
            if isinstance(value, Own) or not isinstance(value, Replicated | Sharded | Partial):
                self._refuse(f"in a loop, {var} is the length of the batch, or a row number")
        return spreader.values

    def _within(self, inner: Variable, outer: Value) -> Value:
        """Return the value of an inner variable in one step: the outer value without axis 0."""
        if isinstance(outer, Sharded):
            if outer.axis == 0:
                self._refuse("it iterates over the examples of the batch")
            return replace(outer, var=inner, axis=outer.axis - 1)
        if not isinstance(outer, Replicated | Partial):
            outer = self._spreader.whole(outer, self._node)
        return with_layout_of(outer, inner)

    def _following(self, inner: dict[Variable, Value]) -> list[list[Value]]:
        """Return the values that a step computes for each state."""
        op = self._op
        mitmot = op.inner_mitmot_outs(op.outputs)
        results: list[list[Value]] = []
        start = 0
        for taps in op.mitmot_out_taps():
            results.append([_inner_value(inner, var) for var in mitmot[start : start + len(taps)]])
            start += len(taps)
        single = [*op.inner_mitsot_outs(op.outputs), *op.inner_sitsot_outs(op.outputs)]
        return results + [[_inner_value(inner, var)] for var in single]

    def _joined(self, state: Value, following: Sequence[Value]) -> Value:
        """Return a layout that fits both the initial and the computed values of a state."""
        for new in following:
            if isinstance(state, Replicated) and isinstance(new, Replicated):
                state = Replicated(state.var, state.zero and new.zero)
            elif isinstance(new, Replicated) and new.zero and isinstance(state, Partial):
                continue
            elif isinstance(state, Replicated) and state.zero and isinstance(new, Partial):
                state = Partial(state.var)
            elif isinstance(state, Sharded) and isinstance(new, Sharded):
                if (state.axis - 1, state.interleaved) != (new.axis, new.interleaved):
                    self._refuse(f"in a loop, {state.var} is split differently from step to step")
            elif not (isinstance(state, Partial) and isinstance(new, Partial)):
                before, after = (_DESCRIPTIONS[type(value)] for value in (state, new))
                self._refuse(f"in a loop, a state is {before} at first and {after} after a step")
        return state

    def _outer(self, inner: dict[Variable, Value]) -> list[Value]:
        """Return the values of the outputs, given the final layouts of the states."""
        op, node = self._op, self._node
        values = [self._steps, *self._sequences, *self._states, *self._lengths, *self._rest]
        if len(values) != len(node.inputs):
            self._refuse("it has inputs of an unsupported kind")
        outputs = remade(node, values)
        layouts = list(self._states)
        for var in op.inner_nitsot_outs(op.outputs):
            value = _inner_value(inner, var)
            layouts.append(replace(value, axis=value.axis + 1) if isinstance(value, Sharded) else value)
        return [with_layout_of(layout, out) for out, layout in zip(outputs, layouts, strict=True)]


def _inner_value(values: dict[Variable, Value], var: Variable) -> Value:
    """Return the value of an inner variable or constant."""
    return values.get(var, Replicated(var))


#: How messages describe layouts.
_DESCRIPTIONS = {Replicated: "the same on all workers", Sharded: "rows of the batch", Partial: "a summand"}
