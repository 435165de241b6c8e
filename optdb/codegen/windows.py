"""Windows over the last axes of C-contiguous arrays: window positions, and kernels that process windows.

The pooled axes form a plane; all axes before them are merged. A window covers `size` elements from ``index * step -
pad`` on. Kernels read a window's elements in C order, like the host's C code, so sums are bitwise equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.kernels import Kernel
from optdb.codegen.source import ROUND_EACH_STEP, typed
from optdb.numpy_types import HostArray

#: Kernel arguments for each pooled axis: its length, and the number, size, stride and padding of windows.
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

        `numbers` are host vectors: sizes, strides and padding. The number of windows is `counts`, or as many as fit.
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
        """Raise ValueError if a window has no element inside its plane."""
        if 0 in self.counts:
            return
        for length, count, size, step, pad in zip(self.lengths, self.counts, self.sizes, self.steps, self.pads):
            if pad >= size or (count - 1) * step - pad >= length:
                raise ValueError(f"{op}: some windows of size {size} cover only padding ({pad})")


def _fitting(length: int, size: int, step: int) -> int:
    """Return the number of windows that fit into a length."""
    return max((length - size) // step + 1, 0)


def _covering(length: int, size: int, step: int) -> int:
    """Return the number of windows that cover a length; the last one may be truncated."""
    if step >= size:
        if not length:
            raise ValueError("pooling with ignore_border=False needs elements, but an axis has length 0")
        return (length - 1) // step + 1
    return max(0, (length - 1 - size + step) // step) + 1


def position(index: str, ndim: int, plane: str, lengths: str) -> str:
    """Return the OpenCL C position of an element in an array; `index` and `lengths` are names without axis numbers."""
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
    """Return a kernel that takes `n`, a chunk size, `Windows.args`, and arrays of `dtype`."""
    params = [f"ga_ssize {number}{d}" for number in _NUMBERS for d in range(ndim)]
    params += [f"ARRAY T *restrict {array}" for array in arrays]
    code = f"OUTLINED_KERNEL void {name}(ga_size n, ga_size chunk, {', '.join(params)})\n{{\n{body}\n}}\n"
    return Kernel(ROUND_EACH_STEP + typed(code, dtype))


def window_kernel(ndim: int, dtype: str, arrays: Sequence[str], start: str, each: str, finish: str) -> Kernel:
    """Return a kernel, named ``windows``, that computes one element of the last array per window of the other arrays.

    The code `start` runs first for each window, `each` for each of its elements, and `finish` last. ``q`` is the index
    of an element, ``first`` that of the first element, and ``o`` that of the window.
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

    `given` is an expression for the value that window ``o`` adds to its element ``q``; for each axis, ``whole`` says
    whether all windows end within the padding. A work item fills rows (`by_rows`), or single elements.
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
    """Return the code with which a work item fills `chunk` of all `n` rows.

    The outer loop runs over the elements of a window, from the last to the first, so that each element sums in window
    order. Common windows of size 2 are filled in pairs.
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
