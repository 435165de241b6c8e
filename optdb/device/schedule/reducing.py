"""Reductions as nodes of a schedule: with epilogues, and merged with each other.

A loop that computes one element from each result of a reduction becomes the reduction's epilogue. On GPUs, reductions
of the same array over the same axes are merged, so that the array is read once; XLA calls this multi-output fusion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optdb.codegen.loops.body import Buffer, LengthValue, Load
from optdb.codegen.operation import ArraySpec, Operation
from optdb.codegen.reductions.plan import Reduction
from optdb.codegen.scalars.costs import QUICK, is_cheap
from optdb.codegen.scalars.program import ProgramBuilder, ScalarProgram, Slot
from optdb.device.schedule.lowering import Lowering
from optdb.device.schedule.schedule_nodes import FusibleLoop, ScheduledOperation, ScheduleNode, reaches
from optdb.device.tensors import Stored, Tensor, c_strides
from optdb.runtime.context import Context
from optdb.runtime.sizes import is_same

#: Maximum number of results per kernel; each result takes registers for all elements that are accumulated in parallel.
_MOST_RESULTS = 6
#: Maximum numbers of scalar operations and of arrays in a kernel.
_MOST_STEPS, _MOST_ARRAYS = 80, 16


@dataclass(frozen=True)
class FoldedAxes:
    """What distinguishes reductions that cannot be merged."""

    fold: str
    shape: tuple[Any, ...]
    axes: tuple[int, ...]
    dtype: str
    acc_dtype: str

    def is_like(self, other: FoldedAxes) -> bool:
        # Comparing symbolic lengths would restrict them.
        alike = replace(self, shape=()) == replace(other, shape=())
        return alike and len(self.shape) == len(other.shape) and all(map(is_same, self.shape, other.shape))


class ScheduledReduction(ScheduledOperation):
    """A reduction of elements that `pre` computes from arrays; `pre` is None if it reduces its only array."""

    def __init__(
        self,
        folding: FoldedAxes,
        arrays: Sequence[Stored],
        specs: Sequence[ArraySpec],
        pre: ScalarProgram | None,
        results: Sequence[Stored],
        work: int,
    ) -> None:
        self.folding = folding
        self.arrays, self.specs = list(arrays), list(specs)
        self.pre = pre
        self.results = list(results)
        #: The arrays that the epilogue reads, the program of the results and of the arrays, and what else it stores.
        self.others: list[Stored] = []
        self.post: ScalarProgram | None = None
        self.also: list[Stored] = []
        super().__init__(self._operation, arrays, results, work)

    def _operation(self, context: Context) -> Operation:
        folding = self.folding
        return Reduction(
            context,
            fold=folding.fold,
            inputs=self.specs,
            axes=folding.axes,
            dtype=folding.dtype,
            acc_dtype=folding.acc_dtype,
            pre=self.pre,
            post=self.post,
            others=list(map(spec_in_reduction, self.others)),
        )

    @property
    def elements(self) -> ScalarProgram:
        """The program that computes the elements of each result."""
        return self.pre or ScalarProgram.copying(self.specs[0].dtype)

    @property
    def steps(self) -> int:
        return len(self.elements.steps) + (0 if self.post is None else len(self.post.steps))

    def overwritable(self, written: Buffer) -> set[Buffer]:
        """Return the epilogue's arrays, of which an item reads only the elements that it overwrites."""
        if not any(x.buffer is written for x in self.also):
            return set()
        elsewhere = {x.buffer for x in self.arrays}
        elsewhere.update(x.buffer for x in self.others if not (x.is_contiguous and x.offset == 0 and self._is_whole(x)))
        return {x.buffer for x in self.others} - elsewhere

    def _is_whole(self, x: Stored) -> bool:
        return all(map(is_same, x.shape, self.results[0].shape))

    def add_epilogue(self, epilogue: LoopEpilogue) -> None:
        """Also compute and store what a loop computes from the results."""
        self.others += [x for x in epilogue.others if not any(is_same_array(x, y) for y in self.others)]
        count = len(self.results)
        builder = ProgramBuilder([self.folding.dtype] * count + [x.dtype for x in self.others])
        known: list[Slot] = list(range(count))
        if self.post is not None:
            known = builder.inline(self.post, range(len(self.post.dtypes)))
        slots = [
            source if isinstance(source, int) else count + _position(source, self.others) for source in epilogue.sources
        ]
        self.post = builder.build([*known, *builder.inline(epilogue.program, slots)])
        shape = self.results[0].shape
        self.also.append(epilogue.region.part(shape, epilogue.region.offset, c_strides(shape)))
        self.inputs = [*self.arrays, *self.others]
        self.outputs = [*self.results, *self.also]
        self.reads |= {x.buffer for x in epilogue.others}
        self.writes.append(epilogue.region.buffer)

    def may_take(self, other: ScheduledReduction) -> bool:
        """Tell whether one kernel can compute both reductions' results, provided that neither needs the other."""
        if len(self.results) + len(other.results) > _MOST_RESULTS or not self.folding.is_like(other.folding):
            return False
        shared = [x for x in other.arrays if any(is_same_array(x, y) for y in self.arrays)]
        if all(is_same(x.size, 1) or any(is_same(step, 0) for step in x.strides) for x in shared):
            return False
        arrays = len(self.arrays) + len(other.arrays) - len(shared)
        return arrays <= _MOST_ARRAYS and self.steps + other.steps <= _MOST_STEPS

    def take(self, other: ScheduledReduction) -> None:
        """Also compute the results of another reduction; neither has an epilogue yet."""
        arrays = list(self.arrays)
        specs = list(self.specs)
        for x, spec in zip(other.arrays, other.specs, strict=True):
            if not any(is_same_array(x, y) for y in arrays):
                arrays.append(x)
                specs.append(spec)
        builder = ProgramBuilder([spec.dtype for spec in specs])
        elements: list[Slot] = []
        for part in (self, other):
            elements += builder.inline(part.elements, [_position(x, arrays) for x in part.arrays])
        self.pre = builder.build(elements)
        self.arrays, self.specs = arrays, specs
        self.inputs = list(arrays)
        self.results += other.results
        self.outputs = list(self.results)
        self.reads |= other.reads
        self.writes += other.writes
        self.after += other.after
        self.work += other.work


@dataclass
class LoopEpilogue:
    """What a loop computes from a reduction's results: `sources` are results' numbers and other arrays."""

    program: ScalarProgram
    sources: list[int | Stored]
    region: Stored

    @property
    def others(self) -> list[Stored]:
        return [source for source in self.sources if isinstance(source, Stored)]


def spec_in_reduction(x: Tensor) -> ArraySpec:
    """Return a tensor's array spec, in which axes of length 1 are broadcastable."""
    return ArraySpec(x.dtype, tuple(is_same(length, 1) for length in x.shape))


def is_same_array(a: Stored, b: Stored) -> bool:
    """Tell whether two arrays have the same elements in memory."""
    return (
        a.buffer is b.buffer
        and a.ndim == b.ndim
        and is_same(a.offset, b.offset)
        and all(map(is_same, (*a.shape, *a.strides), (*b.shape, *b.strides)))
    )


def _position(x: Stored, arrays: Sequence[Stored]) -> int:
    return next(number for number, other in enumerate(arrays) if is_same_array(x, other))


class ReductionFusion:
    """Fuses the reductions among the nodes of a schedule with loops and with each other.

    `lowering_of` writes the body of a kernel over a domain, and `stored` returns the location of a number as an array
    with a given number of axes, all of length 1.
    """

    def __init__(
        self,
        nodes: Sequence[ScheduleNode],
        lowering_of: Callable[[Sequence[int]], Lowering],
        stored: Callable[[LengthValue, int], Stored],
    ) -> None:
        self._nodes = dict.fromkeys(nodes)
        self._lowering_of = lowering_of
        self._stored = stored
        self._writers: dict[Buffer, list[ScheduleNode]] = {}
        for node in nodes:
            for buffer in node.writes:
                self._writers.setdefault(buffer, []).append(node)

    def run(self, merges: bool) -> list[ScheduleNode]:
        """Return the nodes that remain; `merges` says whether reductions are merged with each other."""
        reductions = [node for node in self._nodes if isinstance(node, ScheduledReduction) and node.post is None]
        if merges and len(reductions) > 1:
            self._merge(reductions)
        waited_for = {node for other in self._nodes for node in other.after}
        for loop in list(self._nodes):
            if isinstance(loop, FusibleLoop) and loop.element is not None and loop not in waited_for:
                self._fuse(loop)
        return list(self._nodes)

    def _needs(self, node: ScheduleNode) -> Iterable[ScheduleNode]:
        yield from node.after
        for buffer in node.reads:
            yield from self._writers.get(buffer, ())

    def _reaches(self, node: ScheduleNode, target: ScheduleNode) -> bool:
        return reaches(node, {target}, self._needs)

    def _merge(self, reductions: Sequence[ScheduledReduction]) -> None:
        kept: list[ScheduledReduction] = []
        for node in reductions:
            fitting = (other for other in kept if other.may_take(node))
            other = next((x for x in fitting if not self._reaches(x, node) and not self._reaches(node, x)), None)
            if other is None:
                kept.append(node)
            else:
                other.take(node)
                self._remove(node, other)

    def _remove(self, node: ScheduleNode, by: ScheduledReduction) -> None:
        """Remove a node whose outputs another node now writes."""
        del self._nodes[node]
        for buffer in node.writes:
            self._writers[buffer] = [by if writer is node else writer for writer in self._writers[buffer]]
        for other in self._nodes:
            if node in other.after:
                other.after = [by if one is node else one for one in other.after]

    def _fuse(self, loop: FusibleLoop) -> None:
        """Let a reduction compute what a loop computes from its results, if the loop needs nothing later."""
        if loop.is_late or loop.after or loop.shared or len(self._writers.get(loop.writes[0], ())) > 1:
            return
        for buffer in loop.reads:
            for node in self._writers.get(buffer, ()):
                if not isinstance(node, ScheduledReduction):
                    continue
                others = [writer for read in loop.reads for writer in self._writers.get(read, ()) if writer is not node]
                if any(writer is loop or self._reaches(writer, node) for writer in others):
                    continue
                epilogue = self._epilogue(node, loop)
                if epilogue is not None:
                    node.add_epilogue(epilogue)
                    self._remove(loop, node)
                    return

    def _epilogue(self, node: ScheduledReduction, loop: FusibleLoop) -> LoopEpilogue | None:
        """Return what a loop computes as an epilogue; None if that is impossible or slower."""
        root, region = loop.root, loop.region
        assert root is not None and region is not None and loop.element is not None
        result = node.results[0]
        if not region.is_contiguous or not is_same(root.size, result.size):
            return None
        axes = [axis for axis, length in enumerate(root.shape) if not is_same(length, 1)]
        kept = [axis for axis, length in enumerate(result.shape) if not is_same(length, 1)]
        if len(axes) != len(kept) or not all(is_same(root.shape[a], result.shape[k]) for a, k in zip(axes, kept)):
            return None
        lowering = self._lowering_of(root.shape)
        lowering.level = loop.level
        value = loop.element(lowering, lowering.everywhere)
        if lowering.missing or lowering.tables:
            return None
        program = lowering.build([value])
        if not is_cheap(program, QUICK) and not is_same(root.size, 1):
            return None
        if node.steps + len(program.steps) > _MOST_STEPS or len(lowering.sources) + len(node.inputs) > _MOST_ARRAYS:
            return None
        sources: list[int | Stored] = []
        for source in lowering.sources:
            if isinstance(source, LengthValue):
                sources.append(self._stored(source, result.ndim))
            elif isinstance(source, Load):
                found = _source(source, node, axes, kept, root.shape)
                if found is None:
                    return None
                sources.append(found)
            else:
                return None
        return LoopEpilogue(program, sources, region)


def _source(
    source: Load, node: ScheduledReduction, axes: Sequence[int], kept: Sequence[int], shape: Sequence[Any]
) -> int | Stored | None:
    """Return the result, or the array with the results' axes, that an epilogue reads; None for a view of a result."""
    factors = [source.index.factor(axis) for axis in axes]
    for number, result in enumerate(node.results):
        if source.buffer is not result.buffer:
            continue
        strides = c_strides(shape)
        in_order = all(is_same(factor, strides[axis]) for factor, axis in zip(factors, axes))
        return number if in_order and is_same(source.index.const, result.offset) else None
    like = node.results[0]
    lengths, steps = [1] * like.ndim, [0] * like.ndim
    for axis, factor in zip(kept, factors):
        if not is_same(factor, 0):
            lengths[axis], steps[axis] = like.shape[axis], factor
    return Stored(source.buffer, lengths, source.index.const, steps)
