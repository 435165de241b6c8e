"""The operation that reduces arrays over axes, and the code that chooses and launches its kernels.

If there are few outputs and many elements, several work items share an output: each stores a partial result, and a
second kernel folds the partial results. Launches are cached by shapes and strides.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optdb.codegen.elementwise import QUAD, WIDTH, has_quad_rows
from optdb.codegen.elementwise_programs import common_shape
from optdb.codegen.kernels import Kernel
from optdb.codegen.kernels.launching import BoundKernel, LaunchCache
from optdb.codegen.layout import broadcast_strides, collapse, group_size, size_of
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, check_lengths, output_array
from optdb.codegen.reductions.code import SEVERAL, SEVERAL_OF_ALL, SEVERAL_OF_EACH, STRIP, Epilogue, ReductionCode
from optdb.codegen.reductions.folds import NOTHING
from optdb.codegen.scalars.code import computed_dtypes
from optdb.codegen.scalars.program import ScalarProgram
from optdb.codegen.scalars.types import is_complex
from optdb.codegen.source import work_dtype
from optdb.runtime.arrays import Array, empty, from_host
from optdb.runtime.sizes import SymInt, largest, smallest

#: Minimum number of elements per work item if several items share an output.
SMALLEST_PART = 4096
#: Minimum number of elements per work item on a device that runs thousands of items.
_SMALLEST_ITEM = 16
#: In teams of up to this many items, each item may take one element, so that neighbouring items read neighbouring
#: elements.
_WARP = 32
#: If there are enough teams, each item of a team that is smaller than a warp has at least this many elements.
_SHARE_OF_ROW = 4
#: Maximum work-group size.
_GROUP = 256
#: Work-group size on a device that runs items serially, if kernels use no vectors.
_SERIAL_GROUP = 64
#: Work groups per compute unit on a device that runs thousands of work items.
_GROUPS_PER_UNIT = 8
#: Minimum number of elements for reading in quads. Launches that do not read in quads can be exported for more batch
#: sizes.
_LEAST_FOR_QUADS = 1 << 16
#: Maximum length of an axis whose index fits into 32 bits.
_NARROW = 2**31 - 1

#: Pairs of a launch and its arrays. A number stands for the argument of `launch` with this index; other arrays are
#: temporary.
_Launches = list[tuple[BoundKernel, list[Array | int]]]


@dataclass(frozen=True)
class Axes:
    """The loops of a reduction: the lengths of its axes, and the strides of each array along these axes."""

    kept: tuple[int, ...]
    folded: tuple[int, ...]
    steps: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    #: Strides along the kept axes, for each array that has one element per result; inputs precede outputs.
    out: tuple[tuple[int, ...], ...]
    #: Number of neighbours along the last reduced axis that kernels read at a time. The lengths and strides of this
    #: axis are for groups of this many neighbours.
    neighbours: int = 1

    @property
    def reduces_nearest_axis(self) -> bool:
        """Return whether elements for one output are closer in memory than elements for neighbouring outputs."""
        if self.neighbours > 1:
            return True
        if self.kept[-1] == 1 or self.folded[-1] == 1:
            return self.kept[-1] == 1
        return sum(abs(steps[-1]) for _, steps in self.steps) < sum(abs(steps[-1]) for steps, _ in self.steps)

    @property
    def consists_of_quads(self) -> bool:
        """Return whether there are many elements, and kernels can read the elements for each output in quads."""
        if not all(has_quad_rows((*kept, *folded)) for kept, folded in self.steps):
            return False
        if isinstance(self.folded[-1], SymInt) or self.folded[-1] % QUAD or not self.reduces_nearest_axis:
            return False
        return size_of(self.kept) * size_of(self.folded) >= _LEAST_FOR_QUADS

    def in_quads(self) -> Axes:
        """Return these axes, with groups of four neighbours (read at once) as the elements of the last reduced axis."""
        steps = [(kept, (*folded[:-1], folded[-1] * QUAD)) for kept, folded in self.steps]
        folded = (*self.folded[:-1], self.folded[-1] // QUAD)
        return replace(self, folded=folded, steps=tuple(steps), neighbours=QUAD)

    def with_longest_first(self) -> Axes:
        """Return these axes, with the longest reduced axis first if its index needs more than 32 bits.

        The index along the first axis can be longer, because kernels do not store it. No array has two axes of this
        length.
        """
        longest = max(range(len(self.folded)), key=lambda axis: self.folded[axis])
        if self.folded[longest] <= _NARROW:
            return self

        def first(values: tuple[int, ...]) -> tuple[int, ...]:
            return (values[longest], *values[:longest], *values[longest + 1 :])

        steps = [(kept, first(folded)) for kept, folded in self.steps]
        return replace(self, folded=first(self.folded), steps=tuple(steps))


def axes_of_arrays(
    shape: Sequence[int],
    kept: Sequence[int],
    folded: Sequence[int],
    inputs: Sequence[Array],
    outs: Sequence[Array],
    fixed: Sequence[Array] = (),
) -> Axes:
    """Return the axes of arrays; `outs` have only the `kept` axes, and `fixed` arrays vary only along these axes."""
    strides = [broadcast_strides(x) for x in inputs]
    of_outs: list[Mapping[int, int] | Sequence[int]] = [broadcast_strides(x) for x in fixed]
    of_outs += [dict(zip(kept, broadcast_strides(x), strict=True)) for x in outs]

    def in_memory(axes: Sequence[int]) -> list[int]:
        return sorted(axes, key=lambda axis: -sum(abs(array_strides[axis]) for array_strides in strides))

    def together(axes: list[int], every: Sequence[Mapping[int, int] | Sequence[int]]) -> tuple[Any, Any]:
        steps = [[array_strides[axis] for axis in axes] for array_strides in every]
        return collapse([shape[axis] for axis in axes], steps, max(len(axes), 1))

    kept_lengths, kept_steps = together(in_memory(kept), [*strides, *of_outs])
    folded_lengths, folded_steps = together(in_memory(folded), strides)
    steps = tuple(zip(kept_steps, folded_steps))  # zip drops the strides of the outputs
    return Axes(kept_lengths, folded_lengths, steps, kept_steps[len(inputs) :])


@dataclass(frozen=True)
class Grid:
    """The launch configuration of a kernel."""

    kind: str
    #: Global and local size; with a local size of 0, `automatic_grid` chooses both.
    items: int
    group: int
    each: int
    parts: int


@functools.lru_cache(maxsize=512)
def _kernels(code: ReductionCode) -> list[Kernel]:
    return code.kernels()


def _grid_of_processor(units: int, over: Axes, whole: bool) -> Grid:
    n, m = size_of(over.kept), size_of(over.folded)
    along = over.reduces_nearest_axis
    if along and over.folded[-1] < WIDTH <= over.kept[-1]:
        along = False
    elif not along and over.kept[-1] < WIDTH <= over.folded[-1]:
        along = True
    target_items = units * 4
    if along:
        parts = 1 if whole else parts_of(n, m, target_items)
        each = largest(1, smallest(SMALLEST_PART // m, -(-n // units))) if parts == 1 else 1
        return Grid("along", -(-n // each) * parts, 1, each, parts)
    side = over.kept[-1]
    strip = min(STRIP, -(-side // WIDTH) * WIDTH)
    jobs = n // side * -(-side // strip)
    parts = 1 if whole else parts_of(jobs, m * strip, target_items, most=m)
    return Grid("across", jobs * parts, 1, strip, parts)


def _grid_of_items(units: int, over: Axes, whole: bool) -> Grid:
    n, m = size_of(over.kept), size_of(over.folded)
    parts = 1 if whole else parts_of(n, m, units * 4)
    if over.reduces_nearest_axis:
        return Grid("along", n * parts, 1, 1, parts)
    return Grid("across", -(-n // _SERIAL_GROUP) * parts * _SERIAL_GROUP, _SERIAL_GROUP, 1, parts)


def _grid_of_groups(units: int, over: Axes, whole: bool, group: int) -> Grid:
    target_groups = units * _GROUPS_PER_UNIT
    if not over.reduces_nearest_axis:
        return _grid_of_columns(target_groups, over, whole, group)
    n, m = size_of(over.kept), size_of(over.folded)
    smallest_item = _SMALLEST_ITEM // over.neighbours
    least = max(_SHARE_OF_ROW // over.neighbours, 1)
    team = 1
    while team < group and team < m:
        if team < _WARP:
            is_enough = team * 2 * least > m and n * team >= target_groups * group
        else:
            is_enough = team * 2 * smallest_item > m
        if is_enough:
            break
        team *= 2
    parts = parts_of(n, m, target_groups, smallest=group * smallest_item) if team == group and not whole else 1
    groups = -(-n * parts // (group // team))
    return Grid("along" if over.neighbours == 1 else "along_quads", groups * group, group, team, parts)


def _grid_of_columns(target_groups: int, over: Axes, whole: bool, group: int) -> Grid:
    n, m = size_of(over.kept), size_of(over.folded)
    wide, tall = group, 1
    # Several items share a column if there are fewer columns than items in a group, or too few columns to occupy the
    # device.
    while wide > 1 and tall < m:
        has_room = wide > _WARP and tall * 2 * _SMALLEST_ITEM <= m and n * tall < target_groups * group
        if wide < 2 * n and not has_room:
            break
        wide, tall = wide // 2, tall * 2
    blocks = -(-n // wide)
    parts = 1 if whole else parts_of(blocks, m, target_groups, smallest=tall * _SMALLEST_ITEM)
    return Grid("across", blocks * parts * group, group, tall, parts)


def _is_sum_of_float32(fold: str, pre: ScalarProgram, acc_dtype: str, post: Epilogue) -> bool:
    narrow = ("float16", "float32")
    dtypes = *pre.out_dtypes, *post.program.dtypes[: post.results]
    return fold == "Add" and acc_dtype == "float64" and all(dtype in narrow for dtype in dtypes)


def parts_of(n: int, m: int, wanted: int, smallest: int = SMALLEST_PART, most: int | None = None) -> int:
    """Return the number of parts per output, for `n` outputs with `m` elements each; no part is empty.

    In total, `wanted` parts are needed to occupy the device. `most` is the length that is split into parts; the
    default is `m`.
    """
    most = m if most is None else most
    parts = max(1, min(wanted // n, m // smallest, most))
    return -(-most // -(-most // parts))


@dataclass(eq=False)
class Reduction(Operation):
    """A reduction of arrays, or of elements computed from arrays, over axes; the epilogue's arrays come last."""

    fold: str
    #: Specs of the arrays to reduce, which have the same rank and broadcast to one shape.
    inputs: Sequence[ArraySpec]
    axes: Sequence[int]
    dtype: str
    acc_dtype: str
    #: The prologue computes one or more values from elements of the arrays; each value is folded separately.
    pre: ScalarProgram | None = None
    #: The epilogue computes the outputs; its inputs are the results, followed by elements of other arrays.
    post: ScalarProgram | None = None
    others: Sequence[ArraySpec] = ()

    def __post_init__(self) -> None:
        kept = [axis for axis in range(self.inputs[0].ndim) if axis not in self.axes]
        self._axes = kept, sorted(self.axes)
        profile = self.context.profile
        pre = self.pre or ScalarProgram.copying(self.inputs[0].dtype)
        results = len(pre.out_dtypes)
        post = self.post or ScalarProgram.copying(*[self.dtype] * results)
        epilogue = Epilogue(post, tuple([x.single for x in self.others]), results)
        self._out_dtypes = post.out_dtypes
        # Vectors support neither complex numbers nor several results per element.
        has_complex = any(map(is_complex, (*computed_dtypes(pre), self.acc_dtype)))
        vectors = profile.needs_explicit_vectors and results == 1 and not has_complex
        group = 1
        if vectors:
            self._make_grid: Callable[..., Grid] = _grid_of_processor
        elif profile.runs_items_serially:
            self._make_grid = _grid_of_items
        else:
            group = group_size(self.context, _GROUP)
            self._make_grid = functools.partial(_grid_of_groups, group=group)
        compensated = not profile.accumulates_in_float64 and _is_sum_of_float32(
            self.fold, pre, self.acc_dtype, epilogue
        )
        several = SEVERAL_OF_ALL if compensated and not kept else SEVERAL
        self._code = ReductionCode(
            fold=self.fold,
            pre=pre,
            single=tuple([x.single for x in self.inputs]),
            fixed=(False,) * len(self.inputs) if vectors else self._fixed(),
            acc_dtype=self.acc_dtype,
            post=epilogue,
            kept=max(len(kept), 1),
            folded=max(len(self.axes), 1),
            vectors=vectors,
            group=group,
            quads=not profile.runs_items_serially,
            compensated=compensated,
            several=several if results == 1 else SEVERAL_OF_EACH,
            wrong_functions=profile.quirks.wrong_vector_functions,
        )
        self._rest = replace(
            self._code,
            pre=ScalarProgram.copying(*[work_dtype(self.acc_dtype)] * results),
            single=(False,) * results,
            fixed=(False,) * results,
            folded=1,
            quads=False,
            compensated=False,
            several=SEVERAL if results == 1 else SEVERAL_OF_EACH,
            name="rest",
        )
        self._known: LaunchCache[_Launches] = LaunchCache()
        self._quad_decisions: LaunchCache[bool] = LaunchCache()

    def _fixed(self) -> tuple[bool, ...]:
        """Return, for each input, whether it has one element per result; if no input has several, all are False."""
        fixed = tuple([not x.single and all(x.broadcastable[axis] for axis in self.axes) for x in self.inputs])
        varies = [x for x, is_fixed in zip(self.inputs, fixed, strict=True) if not (is_fixed or x.single)]
        return fixed if varies else (False,) * len(fixed)

    def __str__(self) -> str:
        before = "" if self.pre is None else f" of {self.pre}"
        after = "" if self.post is None else f", then {self.post}"
        return f"Reduction{{{self.fold.lower()}{before}, axes={self._axes[1]}{after}}}"

    def kernels(self) -> list[Kernel]:
        return [*_kernels(self._code), *_kernels(self._rest)]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        folded, others = inputs[: len(self.inputs)], inputs[len(self.inputs) :]
        shape = self._folded_shape(folded)
        if self.fold not in NOTHING and not all(shape[axis] for axis in self._axes[1]):
            raise ValueError(f"{self} has no elements to reduce, and {self.fold.lower()} of no elements is undefined")
        result = tuple([shape[axis] for axis in self._axes[0]])
        self._check_others(others, result)
        outs = [
            output_array(storage, self.context, result, dtype)
            for storage, dtype in zip(outputs, self._out_dtypes, strict=True)
        ]
        if not outs[0].size:
            return
        if 0 not in shape:
            self._launch(kernels, shape, [*folded, *others, *outs])
        elif self.post is None:
            for storage in outputs:
                storage[0] = self._empty_fold(result, self.dtype)
        else:
            whole = self._empty_fold((1, *result), work_dtype(self.acc_dtype))
            parts = [whole] * self._code.post.results
            self._parts_launch(kernels, parts, [*others, *outs]).launch([*parts, *others, *outs])

    def _folded_shape(self, folded: Sequence[Array]) -> tuple[int, ...]:
        if self.pre is not None:
            return common_shape(self, self.inputs, folded)
        check_lengths(self, self.inputs, folded, empty=True)
        return folded[0].shape

    def _check_others(self, others: Sequence[Array], result: tuple[int, ...]) -> None:
        """Check that the epilogue's arrays have the result's shape, except along broadcastable axes."""
        check_lengths(self, self.others, others)
        for array, spec in zip(others, self.others, strict=True):
            lengths = zip(array.shape, result, spec.broadcastable, strict=True)
            if any(length != target for length, target, broadcast in lengths if not broadcast):
                raise ValueError(
                    f"Dimension mismatch in {self}: its epilogue has an array of shape {tuple(array.shape)} for a "
                    f"result of {result}"
                )

    def _empty_fold(self, shape: Sequence[int], dtype: str) -> Array:
        return from_host(self.context, np.full(shape, NOTHING[self.fold]).astype(dtype))

    def _launch(self, kernels: Kernels, shape: Sequence[int], arrays: Sequence[Array]) -> None:
        """Reduce arrays that broadcast to a nonempty shape; the epilogue's arrays follow the inputs."""
        key = tuple([(array.shape, array.strides) for array in arrays])
        quads = self._code.quads and self._takes_quads(key, shape, arrays)
        launches = self._known.get((quads, key), lambda: self._launches(kernels, shape, arrays, quads), owner=kernels)
        for bound, taken in launches:
            bound.launch([arrays[x] if isinstance(x, int) else x for x in taken])

    def _launches(self, kernels: Kernels, shape: Sequence[int], arrays: Sequence[Array], quads: bool) -> _Launches:
        n_inputs = len(self._code.single)
        others = arrays[n_inputs:]
        fixed = [array for array, is_fixed in zip(arrays, self._code.fixed) if is_fixed]
        over = axes_of_arrays(shape, *self._axes, self._many(arrays), self._stepping(others), fixed)
        if not self._code.vectors:
            over = over.with_longest_first()
        if quads:
            over = over.in_quads()
        grid = self._make_grid(self.context.profile.compute_units, over, whole=False)
        operands: list[Array | int] = list(range(len(arrays)))
        if grid.parts == 1:
            return [(self._bound(kernels, "fold", over, grid, arrays), operands)]
        kept_lengths = [shape[axis] for axis in self._axes[0]]
        results = self._code.post.results
        left = empty(self.context, (results * grid.parts, *kept_lengths), work_dtype(self._code.acc_dtype))
        # Each part has the layout of the results, which is C-contiguous, and the parts are stored one after another.
        outs = len(self._code.post.outputs)
        first = self._bound(kernels, "fold", over, grid, [*arrays[:-outs], *[left] * outs])
        parts = [left[begin : begin + grid.parts] for begin in range(0, results * grid.parts, grid.parts)]
        return [
            (first, [*operands[:-outs], *[left] * outs]),
            (self._parts_launch(kernels, parts, others), [*parts, *operands[n_inputs:]]),
        ]

    def _takes_quads(self, key: Hashable, shape: Sequence[int], arrays: Sequence[Array]) -> bool:
        """Return whether to read four elements of each input at once; `key` contains the inputs' shapes and strides.

        Offsets are examined last, so that a trace gets guards on offsets only if they are needed.
        """
        many = self._many(arrays)
        lie = self._quad_decisions.get(key, lambda: axes_of_arrays(shape, *self._axes, many, ()).consists_of_quads)
        return lie and not any(
            isinstance(array.offset, SymInt) or array.offset % (QUAD * array.dtype.itemsize) for array in many
        )

    def _many(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the inputs that have several elements per result; `arrays` may end with the epilogue's arrays."""
        kinds = zip(self._code.single, self._code.fixed, strict=True)
        return [array for array, kind in zip(arrays, kinds) if not any(kind)]

    def _parts_launch(self, kernels: Kernels, parts: Sequence[Array], others: Sequence[Array]) -> BoundKernel:
        like = parts[0]
        over = axes_of_arrays(like.shape, range(1, like.ndim), [0], parts, self._stepping(others))
        grid = self._make_grid(self.context.profile.compute_units, over, whole=True)
        return self._bound(kernels, "rest", over, grid, [*parts, *others])

    def _stepping(self, others: Sequence[Array]) -> list[Array]:
        return [array for array, x in zip(others, self._code.post.operands, strict=True) if not x.single]

    def _bound(self, kernels: Kernels, name: str, over: Axes, grid: Grid, arrays: Sequence[Array]) -> BoundKernel:
        n, m = size_of(over.kept), size_of(over.folded)
        steps = [step for kept_steps, folded_steps in over.steps for step in (*kept_steps, *folded_steps)]
        fixed = len(over.out) - len(self._code.post.stepping)
        steps += [step for array_steps in over.out[:fixed] for step in array_steps]
        outs = [step for array_steps in over.out[fixed:] for step in array_steps]
        after = len(self._code.post.operands)
        numbers = [n, grid.each, m, grid.parts, -(-m // grid.parts), *over.kept, *over.folded]
        args = [*numbers, *arrays[:-after], *steps, *arrays[-after:], n, *outs]
        kernel = kernels[f"{name}_{grid.kind}"]
        if grid.group:
            return kernel.bound(grid.items, grid.group, args)
        return kernel.bound(*kernel.automatic_grid(grid.items), args)
