"""Windows over the last axes of arrays in C order: where they lie, and kernels that go over them.

The axes that are pooled are the last ones; all before them count as one, of planes. A window
covers `size` places from ``place * step - pad`` on, of which those inside of the plane are
read, in C order, as the host's C code does it: so sums come out the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.kernels import Kernel

#: What kernels are told of each pooled axis: its length, how many windows there are, their size, step and pad.
_NUMBERS = ("len", "count", "size", "step", "pad")


@dataclass(frozen=True)
class Windows:
    """How windows lie over some axes; one number for each."""

    #: Of the axes.
    lengths: tuple[int, ...]
    #: How many windows there are.
    counts: tuple[int, ...]
    #: How long they are, how far apart they begin, and how far before the axis the first does.
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    pads: tuple[int, ...]

    @classmethod
    def read(
        cls, op: Any, lengths: Sequence[int], numbers: Sequence[np.ndarray], counts: Sequence[int] | None = None
    ) -> Windows:
        """Return the windows that an op of the host is given.

        Parameters
        ----------
        op : Op
            With `ndim` and `ignore_border`.
        lengths : sequence of int
            Of the pooled axes.
        numbers : sequence of numpy.ndarray
            The values of the op's inputs `ws`, `stride` and `pad`.
        counts : sequence of int, optional
            How many windows there are, if not as many as fit.

        Raises
        ------
        ValueError
            If the numbers make no windows.
        """
        for name, values in zip(("ws", "stride", "pad"), numbers, strict=True):
            if values.shape != (op.ndim,):
                raise ValueError(f"{op}: {name} must be a vector of size {op.ndim}, not of shape {values.shape}")
        sizes, steps, pads = (tuple(map(int, values)) for values in numbers)
        if min(sizes) < 1 or min(steps) < 1 or min(pads) < 0:
            raise ValueError(f"{op}: no windows of size {sizes}, stride {steps} and pad {pads}")
        if counts is None and any(pads) and not op.ignore_border:
            raise ValueError(f"{op}: padding must be zero when ignore border is False, not {pads}")
        if counts is None:
            fit = _fitting if op.ignore_border else _covering
            counts = [fit(length + 2 * pad, size, step) for length, size, step, pad in zip(lengths, sizes, steps, pads)]
        return cls(tuple(map(int, lengths)), tuple(map(int, counts)), sizes, steps, pads)

    @property
    def args(self) -> list[int]:
        """What kernels are given, in the order of `numbers`."""
        return [*self.lengths, *self.counts, *self.sizes, *self.steps, *self.pads]

    def check_none_empty(self, op: Any) -> None:
        """Do nothing if each window has an element inside of its plane.

        Raises
        ------
        ValueError
            If one has none: it has neither a largest element nor a mean.
        """
        for length, count, size, step, pad in zip(self.lengths, self.counts, self.sizes, self.steps, self.pads):
            outside = pad >= size or (count - 1) * step - pad >= length
            if count and outside:
                raise ValueError(f"{op}: there are windows of size {size} that see nothing but padding ({pad})")


def _fitting(length: int, size: int, step: int) -> int:
    """Return how many windows fit into a length."""
    return max((length - size) // step + 1, 0)


def _covering(length: int, size: int, step: int) -> int:
    """Return how many windows it takes to cover a length, the last one cut short."""
    if not length:
        raise ValueError("pooling with ignore_border=False needs something to pool: an axis has length 0")
    if step >= size:
        return (length - 1) // step + 1
    return max(0, (length - 1 - size + step) // step) + 1


def numbers(ndim: int) -> str:
    """Return the parameters of a kernel for `Windows.args`."""
    return ", ".join(f"ga_ssize {name}{d}" for name in _NUMBERS for d in range(ndim))


def place(index: str, ndim: int, plane: str, lengths: str) -> str:
    """Return where in an array an element is: `index` and `lengths` are names, without the number of the axis."""
    at = plane
    for d in range(ndim):
        at = f"({at} * {lengths}{d} + {index}{d})"
    return at


def bounds(d: int) -> str:
    """Return code that says from where (`lo`) to where (`hi`) the window at `at` reads along an axis."""
    return (
        f"const ga_ssize start{d} = at{d} * step{d} - pad{d};\n"
        f"const ga_ssize lo{d} = max(start{d}, (ga_ssize)0), hi{d} = min(start{d} + size{d}, len{d});"
    )


def params(arrays: Iterable[tuple[str, str]]) -> str:
    """Return arrays, by names and the C types of their elements, as parameters of a kernel."""
    return ", ".join(f"ARRAY {stored} *restrict {name}" for name, stored in arrays)


def window_kernel(ndim: int, arrays: Sequence[tuple[str, str]], start: str, each: str, finish: str) -> Kernel:
    """Return a kernel, named ``windows``, that computes an element of the last array from each window of the others.

    Parameters
    ----------
    ndim : int
        How many axes are pooled.
    arrays : sequence of (str, str)
        Names, and the C types of their elements. All but the last are read.
    start, each, finish : str
        What is done for a window first, for each of its elements, and at the end. The elements are at ``q``,
        the first of them at ``first``, and the window's own place is ``o``.
    """
    last = ndim - 1
    outer = "\n".join(
        f"const ga_ssize at{d} = rest % count{d}; rest /= count{d};\n{bounds(d)}" for d in reversed(range(last))
    )
    loops = "\n".join(f"for (ga_ssize m{d} = lo{d}; m{d} < hi{d}; ++m{d}) {{" for d in range(last))
    return Kernel(f"""
#pragma OPENCL FP_CONTRACT OFF
OUTLINED_KERNEL void windows(ga_size n, ga_size chunk, {numbers(ndim)}, {params(arrays)})
{{
ga_size o = get_global_id(0) * chunk;
const ga_size end = min(o + chunk, n);
while (o < end) {{
ga_size rest = o / count{last};
ga_ssize at{last} = o % count{last};
const ga_size stop = min(end, o + (count{last} - at{last}));
{outer}
for (; o < stop; ++o, ++at{last}) {{
{bounds(last)}
const ga_ssize first = {place("lo", ndim, "(ga_ssize)rest", "len")};
{start}
{loops}
const ga_ssize row = {place("m", last, "(ga_ssize)rest", "len")} * len{last};
for (ga_ssize q = row + lo{last}; q < row + hi{last}; ++q) {{
{each}
}}
{"}" * last}
{finish}
}}
}}
}}
""")
