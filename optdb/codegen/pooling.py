"""Pooling over the windows of an array, the gradients of pooling, and the extraction of image patches.

The inputs of pooling are arrays of one dtype, then three host vectors with one number per pooled axis (the last axes):
sizes, strides and padding. A window covers `size` elements, starting at ``index * step - pad``. The elements of a
window are processed in C order, as in the host's C code, so that sums are bitwise equal. The largest element of a
window is the first element that no later element exceeds. Gradients are added in window order. A CPU work item fills
rows; on other devices, each item fills one element.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optdb.codegen.elements import RAW, contiguous, copying
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import check_shapes, launch_chunks, size_of, steps_of
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.source import ROUND_EACH_STEP, filled, functions, typed
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array

#: Kernel arguments for each pooled axis: its length, and the windows' number, size, stride and padding.
_NUMBERS = ("len", "count", "size", "step", "pad")


@dataclass(frozen=True)
class Windows:
    """The windows over the pooled axes; each field has one number per axis."""

    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    pads: tuple[int, ...]

    @classmethod
    def read(
        cls, op: Any, lengths: Sequence[int], numbers: Sequence[HostArray], counts: Sequence[int] | None = None
    ) -> Windows:
        """Return the windows of an operation over axes with given lengths; raise ValueError if they are not valid.

        `numbers` are host vectors: sizes, strides and padding. `counts` are the numbers of windows along the axes; by
        default, as many as fit if `op.ignore_border` is true, else enough to cover each axis.
        """
        for name, values in zip(("ws", "stride", "pad"), numbers, strict=True):
            if values.shape != (op.ndim,):
                raise ValueError(f"{op}: {name} must be a vector of size {op.ndim}, not of shape {values.shape}")
        sizes, steps, pads = (tuple(map(int, values)) for values in numbers)
        if min(sizes) < 1 or min(steps) < 1 or min(pads) < 0:
            raise ValueError(f"{op}: no windows of size {sizes}, stride {steps} and pad {pads}")
        if counts is None and any(pads) and not op.ignore_border:
            raise ValueError(f"{op}: padding must be zero when ignore_border is False, not {pads}")
        if counts is None:
            fit = _fitting if op.ignore_border else _covering
            counts = [fit(length + 2 * pad, size, step) for length, size, step, pad in zip(lengths, sizes, steps, pads)]
        return cls(tuple(map(int, lengths)), tuple(map(int, counts)), sizes, steps, pads)

    @property
    def args(self) -> list[int]:
        """Return the kernel arguments, in the order of `_NUMBERS`."""
        return [*self.lengths, *self.counts, *self.sizes, *self.steps, *self.pads]

    def check_windows_nonempty(self, op: Any) -> None:
        """Raise ValueError if a window covers only padding."""
        if 0 in self.counts:
            return
        for length, count, size, step, pad in zip(self.lengths, self.counts, self.sizes, self.steps, self.pads):
            if pad >= size or (count - 1) * step - pad >= length:
                raise ValueError(f"{op}: some windows of size {size} cover only padding ({pad})")


def _fitting(length: int, size: int, step: int) -> int:
    return max((length - size) // step + 1, 0)


def _covering(length: int, size: int, step: int) -> int:
    """Return the number of windows needed to cover a length; the last window may be truncated."""
    if step >= size:
        if not length:
            raise ValueError("pooling with ignore_border=False needs elements, but an axis has length 0")
        return (length - 1) // step + 1
    return max(0, (length - 1 - size + step) // step) + 1


def position(index: str, ndim: int, plane: str, lengths: str) -> str:
    """Return OpenCL C for an element's position in an array; `index` and `lengths` are names without axis numbers."""
    at = plane
    for d in range(ndim):
        at = f"({at} * {lengths}{d} + {index}{d})"
    return at


def bounds(d: int) -> str:
    """Return code that computes the bounds, `lo` and `hi`, of the window at `at` along an axis."""
    return (
        f"const ga_ssize start{d} = at{d} * step{d} - pad{d};\n"
        f"const ga_ssize lo{d} = max(start{d}, (ga_ssize)0), hi{d} = min(start{d} + size{d}, len{d});"
    )


def _kernel(name: str, ndim: int, dtype: str, arrays: Sequence[str], body: str) -> Kernel:
    params = [f"ga_ssize {number}{d}" for number in _NUMBERS for d in range(ndim)]
    params += [f"ARRAY T *restrict {array}" for array in arrays]
    code = f"OUTLINED_KERNEL void {name}(ga_size n, ga_size chunk, {', '.join(params)})\n{{\n{body}\n}}\n"
    return Kernel(ROUND_EACH_STEP + typed(code, dtype))


def window_kernel(ndim: int, dtype: str, arrays: Sequence[str], start: str, each: str, finish: str) -> Kernel:
    """Return a kernel, named ``windows``, that computes one element of the last array for each window of the others.

    For each window, the code in `start` runs first, `each` runs once for every element of the window, and `finish` runs
    last. ``q`` is the index of an element, ``first`` is the index of the window's first element, and ``o`` is the index
    of the window.
    """
    last = ndim - 1
    outer = "\n".join(
        f"const ga_ssize at{d} = rest % count{d}; rest /= count{d};\n{bounds(d)}" for d in reversed(range(last))
    )
    loops = "\n".join(f"for (ga_ssize m{d} = lo{d}; m{d} < hi{d}; ++m{d}) {{" for d in range(last))
    body = f"""
ga_size o = get_global_id(0) * chunk;
const ga_size end = min(o + chunk, n);
while (o < end) {{
ga_size rest = o / count{last};
ga_ssize at{last} = o % count{last};
const ga_size stop = min(end, o + (count{last} - at{last}));
{outer}
for (; o < stop; ++o, ++at{last}) {{
{bounds(last)}
const ga_ssize first = {position("lo", ndim, "(ga_ssize)rest", "len")};
{start}
{loops}
const ga_ssize row = {position("m", last, "(ga_ssize)rest", "len")} * len{last};
for (ga_ssize q = row + lo{last}; q < row + hi{last}; ++q) {{
{each}
}}
{"}" * last}
{finish}
}}
}}"""
    return _kernel("windows", ndim, dtype, arrays, body)


def gradient_kernel(ndim: int, dtype: str, arrays: Sequence[str], given: str, by_rows: bool) -> Kernel:
    """Return a kernel, named ``gradient``, that sums the gradients of each element over the windows that cover it.

    `given` is an expression for the value that window ``o`` adds to its element ``q``. For each axis, `whole` is true
    if all windows end within the padding. A work item fills whole rows if `by_rows` is true, else single elements.
    """
    whole = "\n".join(
        f"const bool whole{d} = (count{d} - 1) * step{d} + size{d} <= len{d} + 2 * pad{d};" for d in range(ndim)
    )
    # Like the host, round the running sum to the stored dtype after each addition.
    add = f"gx[q] = STORE(LOAD(gx[q]) + ({given}));"
    body = _rows(ndim, add) if by_rows else _elements(ndim, add)
    return _kernel("gradient", ndim, dtype, [*arrays, "gx"], f"{whole}\n{body}")


def _reaching(d: int) -> str:
    """Return code that computes the range of windows, `from` to `to`, that cover index `i` of an axis."""
    return (
        f"const ga_ssize over{d} = i{d} + pad{d};\n"
        f"const ga_ssize from{d} = over{d} < size{d} ? 0 : (over{d} - size{d}) / step{d} + 1;\n"
        f"const ga_ssize to{d} = min(over{d} / step{d} + 1, count{d});"
    )


def _loops(ndim: int) -> str:
    return "\n".join(f"for (ga_ssize at{d} = from{d}; at{d} < to{d}; ++at{d}) {{" for d in range(ndim))


def _decode(ndim: int) -> str:
    return "\n".join(
        f"const ga_ssize i{d} = rest % len{d}; rest /= len{d};\n{_reaching(d)}" for d in reversed(range(ndim))
    )


def _rows(ndim: int, add: str) -> str:
    """Return the code with which a work item fills `chunk` of the `n` rows.

    The outer loop runs over the elements of a window, from the last to the first, so that the gradients of an element
    are added in window order. Windows of size 2, which are common, are filled in pairs.
    """
    last = ndim - 1
    at = f"const ga_ssize at{last} = j, o = windows + j;"

    def along(step: object) -> str:
        return f"for (ga_ssize j = first; j < end; ++j) {{\n{at}\nconst ga_ssize q = begin + j * {step};\n{add}\n}}"

    return f"""
const ga_size end_row = min((ga_size)get_global_id(0) * chunk + chunk, n);
const bool in_pairs = size{last} == 2 && step{last} == 2 && pad{last} == 0 && 2 * count{last} <= len{last};
for (ga_size row = get_global_id(0) * chunk; row < end_row; ++row) {{
const ga_ssize row_start = row * len{last};
for (ga_ssize q = row_start; q < row_start + len{last}; ++q)
    gx[q] = STORE(0);
ga_size rest = row;
{_decode(last)}
{_loops(last)}
const ga_ssize windows = {position("at", last, "(ga_ssize)rest", "count")} * count{last};
if (in_pairs) {{
for (ga_ssize j = 0; j < count{last}; ++j) {{
{at}
{{ const ga_ssize q = row_start + 2 * j; {add} }}
{{ const ga_ssize q = row_start + 2 * j + 1; {add} }}
}}
continue;
}}
for (ga_ssize e = size{last} - 1; e >= 0; --e) {{
const ga_ssize off = e - pad{last}, begin = row_start + off;
const ga_ssize first = off >= 0 ? 0 : (-off + step{last} - 1) / step{last};
const ga_ssize end = off >= len{last} ? 0 : min(count{last}, (len{last} - off - 1) / step{last} + 1);
if (step{last} == 2) {{ {along(2)} }}
else if (step{last} == 1) {{ {along(1)} }}
else {{ {along(f"step{last}")} }}
}}
{"}" * last}
}}"""


def _elements(ndim: int, add: str) -> str:
    return f"""
const ga_size end = min((ga_size)get_global_id(0) * chunk + chunk, n);
for (ga_size q = get_global_id(0) * chunk; q < end; ++q) {{
gx[q] = STORE(0);
ga_size rest = q;
{_decode(ndim)}
{_loops(ndim)}
const ga_ssize o = {position("at", ndim, "(ga_ssize)rest", "count")};
{add}
{"}" * ndim}
}}"""


@dataclass(eq=False)
class WindowOperation(Operation):
    """Base class of the operations in this module."""

    x: ArraySpec
    ndim: int = 2
    #: 'max', 'sum', or a mean that includes or excludes the padding ('average_inc_pad', 'average_exc_pad').
    mode: str = "max"
    #: Whether to omit windows that do not fit, instead of truncating them.
    ignore_border: bool = True

    def kernels(self) -> list[Kernel]:
        return [self._kernel(), *copying(self.x).kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        *arrays, sizes, steps, pads = inputs
        x = arrays[0]
        windows = Windows.read(self, x.shape[-self.ndim :], (sizes, steps, pads), self._counts(*arrays))
        self._check(x, windows)
        self._launch(windows, arrays, outputs[0], kernels)

    @abstractmethod
    def _kernel(self) -> Kernel:
        """Return the kernel that processes the windows."""

    @abstractmethod
    def _counts(self, *arrays: Array) -> Sequence[int] | None:
        """Return the windows' counts if an input's shape defines them, else None; raise ValueError for bad shapes."""

    def _check(self, x: Array, windows: Windows) -> None:
        """Raise ValueError if the windows cannot be pooled."""

    def _launch(self, windows: Windows, arrays: Sequence[Array], storage: list[Any], kernels: Kernels) -> None:
        shape = (*arrays[0].shape[: -self.ndim], *windows.counts)
        out = output_array(storage, self.context, shape, self.x.dtype)
        ready = self._in_order(arrays, kernels)
        launch_chunks(kernels["windows"], self.context, out.size, *windows.args, *ready, out)

    def _in_order(self, arrays: Sequence[Array], kernels: Kernels) -> list[Array]:
        return [contiguous(array, self.x, kernels, self.context) for array in arrays]


class PoolWindows(WindowOperation):
    """The largest element, the sum or the mean of each window."""

    def _kernel(self) -> Kernel:
        start, each = "W acc = 0;", "acc += LOAD(x[q]);"
        if self.mode == "max":
            start, each = "W acc = LOAD(x[first]);", "const W v = LOAD(x[q]);\nacc = v > acc ? v : acc;"
        return window_kernel(self.ndim, self.x.dtype, ["x", "z"], start, each, f"z[o] = STORE({self._result()});")

    def _result(self) -> str:
        if self.mode in ("max", "sum"):
            return "acc"
        whole = self.mode == "average_inc_pad" and self.ignore_border
        # A window that covers only padding has no elements, and its mean on the host is NaN.
        sides = [f"size{d}" if whole else f"max(hi{d} - lo{d}, (ga_ssize)0)" for d in range(self.ndim)]
        # Integers are divided in 64 bits, and truncated.
        dtype = self.x.dtype
        wide = "W" if dtype.startswith("float") else "ga_ulong" if dtype == "uint64" else "ga_long"
        return f"({wide})acc / ({wide})({' * '.join(sides)})"

    def _counts(self, *arrays: Array) -> None:
        return None

    def _check(self, x: Array, windows: Windows) -> None:
        # A window without elements has no maximum. The mean of a window without elements is also undefined, unless the
        # dtype is a floating-point type.
        needs_elements = self.mode == "max" or (self.mode != "sum" and not self.x.dtype.startswith("float"))
        if needs_elements and 0 not in x.shape[: -self.ndim]:
            windows.check_windows_nonempty(self)


class PickAtLargest(PoolWindows):
    """For each window, the second array's value at the position of the first array's largest element in the window."""

    def _kernel(self) -> Kernel:
        start = "W largest = LOAD(x[first]);\nga_ssize best = first;"
        each = "const W v = LOAD(x[q]);\nif (v > largest) { largest = v; best = q; }"
        return window_kernel(self.ndim, self.x.dtype, ["x", "points", "z"], start, each, "z[o] = points[best];")

    def _counts(self, *arrays: Array) -> None:
        x, points = arrays
        check_shapes(self, x.shape, points.shape)


class SumWhereLargest(WindowOperation):
    """For each window, the sum of the third array's elements at all positions where the first array has its maximum.

    The second array contains the maxima.
    """

    def _kernel(self) -> Kernel:
        start = "W acc = 0;\nconst W largest = LOAD(top[o]);"
        # Adding zero is cheaper than an unpredictable branch.
        each = "acc += LOAD(x[q]) == largest ? LOAD(by[q]) : 0;"
        return window_kernel(self.ndim, self.x.dtype, ["x", "top", "by", "z"], start, each, "z[o] = STORE(acc);")

    def _counts(self, *arrays: Array) -> Sequence[int]:
        x, top, by = arrays
        check_shapes(self, x.shape, by.shape)
        check_shapes(self, x.shape[: -self.ndim], top.shape[: -self.ndim])
        return top.shape[-self.ndim :]


class LargestGradient(WindowOperation):
    """The gradient of max pooling: each element gets the sum of the gradients of the windows whose maximum it equals.

    The inputs are the array to pool, the windows' largest elements, and the gradient with respect to these elements.
    """

    #: Kernel parameters for the arrays that the gradient reads; they are the operation's last inputs.
    names: ClassVar[Sequence[str]] = ("x", "top", "gz")

    def _kernel(self) -> Kernel:
        by_rows = self.context.profile.runs_items_serially
        return gradient_kernel(self.ndim, self.x.dtype, self.names, self._given(), by_rows)

    def _given(self) -> str:
        """Return the expression for the gradient that element ``q`` gets from window ``o``."""
        # Adding zero is cheaper than an unpredictable branch.
        return "LOAD(x[q]) == LOAD(top[o]) ? LOAD(gz[o]) : 0"

    def _counts(self, *arrays: Array) -> Sequence[int]:
        x, top, gz = arrays[0], arrays[1], arrays[-1]
        check_shapes(self, x.shape[: -self.ndim], top.shape[: -self.ndim])
        check_shapes(self, top.shape, gz.shape)
        return top.shape[-self.ndim :]

    def _launch(self, windows: Windows, arrays: Sequence[Array], storage: list[Any], kernels: Kernels) -> None:
        gx = output_array(storage, self.context, arrays[0].shape, self.x.dtype)
        if not gx.size:
            return
        args = [*windows.args, *self._in_order(arrays[-len(self.names) :], kernels), gx]
        n = size_of(gx.shape[:-1]) if self.context.profile.runs_items_serially else gx.size
        launch_chunks(kernels["gradient"], self.context, n, *args, least=1)


class MeanGradient(LargestGradient):
    """The gradient of sum or average pooling, given the array to pool and the gradient of the sums or means."""

    names = ("gz",)

    def _given(self) -> str:
        if self.mode == "sum":
            return "LOAD(gz[o])"
        # Windows are truncated at the end of the padding; padding inside a window counts towards the window's size.
        sides = [
            f"(whole{d} ? size{d} : min(at{d} * step{d} + size{d}, len{d} + 2 * pad{d}) - at{d} * step{d})"
            for d in range(self.ndim)
        ]
        # The host rounds the gradient of each window before adding it to an element.
        return f"LOAD(STORE(LOAD(gz[o]) / (W)({' * '.join(sides)})))"

    def _check(self, x: Array, windows: Windows) -> None:
        if self.mode == "average_exc_pad" and any(windows.pads):
            raise ValueError(f"{self}: padding must be zero for average_exc_pad, not {windows.pads}")


@dataclass(eq=False)
class ImagePatches(Operation):
    """The patches of images, as rows of a matrix.

    The inputs are the images, of shape (images, channels, height, width), and two host vectors: the height and width of
    a patch, and the strides between patches.
    """

    x: ArraySpec
    #: With 'valid', patches must fit exactly; 'ignore_borders' ignores the remainder; 'half' and 'full' pad with zeros;
    #: 'wrap_centered' wraps around.
    mode: str = "valid"

    def kernels(self) -> list[Kernel]:
        raw, wrapped = RAW[np.dtype(self.x.dtype).itemsize], self.mode == "wrap_centered"
        return [Kernel(filled(functions("image_patches.cl")["patches"], RAW=raw, WRAPPED=int(wrapped)))]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, *numbers = inputs
        sizes, steps = self._numbers(*numbers)
        images, stack, *lengths = x.shape
        grid = [self._count(axis, *extents) for axis, extents in enumerate(zip(lengths, sizes, steps))]
        shape = (grid[0] * grid[1] * stack * images, sizes[0] * sizes[1])
        out = output_array(outputs[0], self.context, shape, x.dtype)
        starts = [{"half": size // 2, "wrap_centered": size // 2, "full": size - 1}.get(self.mode, 0) for size in sizes]
        args = [stack, *lengths, *grid, *sizes, *steps, *starts, x, *steps_of(x), out]
        launch_chunks(kernels["patches"], self.context, out.size, *args)

    def _numbers(self, neib_shape: HostArray, neib_step: HostArray) -> tuple[list[int], list[int]]:
        for name, values in (("neib_shape", neib_shape), ("neib_step", neib_step)):
            if values.shape != (2,):
                raise TypeError(f"{self}: {name} has to contain 2 elements, not {values.tolist()}")
            if min(values) < 1:
                raise ValueError(f"{self}: {name} has values <= 0: {values.tolist()}")
        return [int(size) for size in neib_shape], [int(step) for step in neib_step]

    def _count(self, axis: int, length: int, size: int, step: int) -> int:
        """Return the number of patches along an image axis; raise TypeError if they do not fit."""
        if self.mode == "wrap_centered":
            if size % 2 != 1:
                raise TypeError(f"{self} needs patches with odd shapes: neib_shape[{axis}]={size}")
            if length < size:
                raise TypeError(f"{self}: an image of length {length} is smaller than a patch of {size}, axis {axis}")
            return -(-length // step)
        if self.mode == "ignore_borders":
            return max(0, 1 + (length - size) // step)
        room = {"valid": length - size, "half": length - size % 2, "full": length + size - 2}[self.mode]
        if length < size or room % step:
            raise TypeError(
                f"{self}: neib_shape[{axis}]={size}, neib_step[{axis}]={step} and"
                f" ten4.shape[{2 + axis}]={length} not consistent"
            )
        return 1 + room // step
