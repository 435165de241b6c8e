"""Loops over one point, such as the scalars of an unrolled recurrence: no two kernels compute the same scalar.

The loops of a schedule share one body. Each kernel computes a range of the body's steps, and stores the results that
later kernels use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from optdb.codegen.loops.body import Buffer, Index, Load, LoopBody, LoweredValue, Operand
from optdb.codegen.loops.grids import LoopGrid
from optdb.codegen.loops.kernel import LoopKernel
from optdb.codegen.loops.targets import ElementStore, Target, buffer_of, moved, results_of
from optdb.codegen.scalars.costs import CHEAP
from optdb.codegen.scalars.program import Number
from optdb.device.schedule.lowering import Lowering
from optdb.device.schedule.schedule_nodes import MOST_BUFFERS, FusedKernel, FusibleLoop
from optdb.runtime.context import Context


@dataclass(eq=False)
class _Segment:
    """A range of the body's steps, and the targets that one kernel computes."""

    begin: int
    grid: LoopGrid
    end: int = 0
    targets: list[Target] = field(default_factory=list)
    #: The steps whose results later segments use, by dtype.
    passed: dict[str, list[int]] = field(default_factory=dict)


class PointLoops:
    """The kernels of loops over one point, in the order in which the loops are added."""

    def __init__(self, body: Lowering, context: Context) -> None:
        self.body = body
        self._context = context
        self._segments: list[_Segment] = []

    def add(self, loops: Sequence[FusibleLoop]) -> range:
        """Add loops that do not wait for each other; return the numbers of their kernels."""
        body, first = self.body, len(self._segments)
        begin = len(body.steps)
        targets = [target for loop in loops for target in loop.targets(body)]
        #: Maps a step's number to the targets that can be computed once the step has run.
        ready: dict[int, list[Target]] = {}
        for target in targets:
            numbers = [x.number for x in results_of(target) if isinstance(x, LoweredValue) and x.is_step]
            ready.setdefault(max([begin, *numbers]), []).append(target)
        end = max(len(body.steps), begin + 1)
        kernels = -(-(end - begin) // self._context.options.loop_steps)
        length = -(-(end - begin) // kernels)
        segment, buffers = self._begun(begin, loops[0].grid), set[Buffer]()
        for number in range(begin, end):
            added = {buffer_of(target) for target in ready.get(number, ())}
            if number < len(body.steps):
                values = (LoweredValue(number, is_step=True), *body.steps[number][1])
                added |= {buffer for value in values for buffer in body.buffers_of(value)}
            is_full = number - segment.begin >= length or len(buffers | added) > MOST_BUFFERS
            if is_full and number > segment.begin:
                segment.end = number
                segment, buffers = self._begun(number, loops[0].grid), set()
            buffers |= added
            segment.targets += ready.get(number, ())
        segment.end = len(body.steps)
        return range(first, len(self._segments))

    def _begun(self, begin: int, grid: LoopGrid) -> _Segment:
        self._segments.append(_Segment(begin, grid))
        return self._segments[-1]

    def kernels(self) -> list[FusedKernel]:
        """Return the kernels."""
        slots = self._slots()
        return [self._kernel(segment, slots) for segment in self._segments]

    def _slots(self) -> dict[int, tuple[Buffer, int]]:
        """Find a buffer and an index for the result of each step that a later segment uses."""
        passed: dict[int, None] = {}
        for segment in self._segments:
            used = [x for number in range(segment.begin, segment.end) for x in self.body.steps[number][1]]
            used += [x for target in segment.targets for x in results_of(target)]
            passed.update(
                (x.number, None)
                for x in used
                if isinstance(x, LoweredValue) and x.is_step and x.number < segment.begin and not self._is_trivial(x)
            )
        slots: dict[int, tuple[Buffer, int]] = {}
        for segment in self._segments:
            for number in range(segment.begin, segment.end):
                if number in passed:
                    segment.passed.setdefault(self.body.steps[number][0].dtype, []).append(number)
            for dtype, numbers in segment.passed.items():
                buffer = Buffer(len(numbers), dtype, "scalars")
                slots.update((number, (buffer, position)) for position, number in enumerate(numbers))
        return slots

    def _is_trivial(self, value: LoweredValue) -> bool:
        """Return whether a step takes no longer than loading its result."""
        scalar, operands = self.body.steps[value.number]
        are_inputs = not any(isinstance(x, LoweredValue) and x.is_step for x in operands)
        return scalar.name in CHEAP and are_inputs and sum(isinstance(x, LoweredValue) for x in operands) < 2

    def _kernel(self, segment: _Segment, slots: dict[int, tuple[Buffer, int]]) -> FusedKernel:
        whole, body = self.body, LoopBody(())
        values: dict[int, Operand] = {}

        def operand(x: Operand) -> Operand:
            if isinstance(x, Number):
                return x
            if not x.is_step:
                return body.source(whole.sources[x.number], whole.dtypes[x.number])
            if x.number not in values:
                if x.number in slots:
                    buffer, position = slots[x.number]
                    values[x.number] = body.source(Load(buffer, Index(position)), buffer.dtype)
                else:
                    values[x.number] = step(x.number)
            return values[x.number]

        def step(number: int) -> Operand:
            scalar, operands = whole.steps[number]
            if scalar.name == "Element":
                scalar = body.element_of(whole.table_of(scalar), scalar["offset"])
            return body.apply(scalar, [operand(x) for x in operands])

        for number in range(segment.begin, segment.end):
            values[number] = step(number)
        targets = [moved(target, operand) for target in segment.targets]
        for numbers in segment.passed.values():
            for number in numbers:
                buffer, position = slots[number]
                targets.append(ElementStore(values[number], buffer, Index(position)))
        return FusedKernel(LoopKernel(body, targets, self._context.profile), segment.grid)
