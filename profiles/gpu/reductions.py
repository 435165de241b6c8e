"""Compares the speed of reductions and of a copy: ``python -m profiles.gpu.reductions``.

Times are medians, measured by the device's own clock. Bandwidths count all bytes that are read or written. A copy reads
and writes its array, and a reduction only reads it, so a reduction can be nearly twice as fast. The command does not
need Theano.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from optdb.codegen.kernels import compile_kernels
from optdb.codegen.operation import ArraySpec
from optdb.codegen.reductions.plan import Reduction
from optdb.codegen.scalars.program import Scalar, ScalarProgram
from optdb.runtime.arrays import Array, from_host, to_host
from optdb.runtime.context import Context
from optdb.runtime.dispatch import listened
from optdb.runtime.library import cl
from optdb.runtime.timing import Timer, seconds_of, timed_beside
from profiles import terminal

REPEAT = 15
#: Number of drawn random numbers; longer arrays repeat these numbers.
_DRAWN = 1 << 20


@dataclass(frozen=True)
class ReductionCase:
    """A case: the sum of a float32 array over some axes, or of the array's product with another array."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    #: The dtype of the accumulator, and the dtype of the result.
    acc_dtype: str = "float64"
    dtype: str = "float32"
    #: The shape of the other array, if there is one.
    factor: tuple[int, ...] | None = None

    def scaled(self, length: int) -> ReductionCase:
        """Return a smaller case with at most `length` elements per axis."""
        shape = tuple(min(n, length) for n in self.shape)
        factor = self.factor and tuple(min(n, length) for n in self.factor)
        return ReductionCase(self.name, shape, self.axes, self.acc_dtype, self.dtype, factor)


CASES = (
    ReductionCase("channels, 16 of 32x32", (128, 16, 32, 32), (0, 2, 3)),
    ReductionCase("the same in float64", (128, 16, 32, 32), (0, 2, 3), dtype="float64"),
    ReductionCase("the same in float32", (128, 16, 32, 32), (0, 2, 3), acc_dtype="float32"),
    ReductionCase("channels, 64 of 32x32", (128, 64, 32, 32), (0, 2, 3)),
    ReductionCase("channels, 64 of 8x8", (128, 64, 8, 8), (0, 2, 3)),
    ReductionCase("channels, 512 of 7x7", (256, 512, 7, 7), (0, 2, 3)),
    ReductionCase("products, 64 of 32x32", (128, 64, 32, 32), (0, 2, 3), factor=(128, 64, 32, 32)),
    ReductionCase("by a channel's number", (128, 64, 32, 32), (0, 2, 3), factor=(1, 64, 1, 1)),
    ReductionCase("channels last, 64", (128, 32, 32, 64), (0, 1, 2)),
    ReductionCase("rows of 512", (32 * 512, 512), (1,)),
    ReductionCase("columns, 512", (32 * 512, 512), (0,)),
    ReductionCase("tall, 16 columns", (1 << 20, 16), (0,)),
    ReductionCase("narrow rows, 16", (1 << 20, 16), (1,)),
    ReductionCase("two of five axes", (64, 32, 49, 16, 4), (0, 2)),
    ReductionCase("all", (8192, 8192), (0, 1)),
    ReductionCase("rows", (8192, 8192), (1,)),
    ReductionCase("columns", (8192, 8192), (0,)),
)


def numbers(shape: Sequence[int], seed: int) -> np.ndarray:
    """Return random float32 numbers in the given shape."""
    drawn = np.random.default_rng(seed).normal(size=_DRAWN).astype("float32")
    return np.resize(drawn, shape)


def measure(case: ReductionCase, context: Context) -> tuple[float, int, float]:
    """Return the seconds of a reduction, the number of bytes read and written, and the largest relative error."""
    values = [numbers(shape, seed) for seed, shape in enumerate([case.shape, *filter(None, [case.factor])])]
    product = ScalarProgram.of(Scalar("Mul", "float32"), ["float32"] * 2) if len(values) > 1 else None
    specs = [ArraySpec("float32", tuple(length == 1 for length in value.shape)) for value in values]
    operation = Reduction(context, "Add", specs, case.axes, case.dtype, case.acc_dtype, pre=product)
    arrays = [from_host(context, value) for value in values]
    seconds, got = _timed(operation, context, arrays)
    terms = np.multiply(*values) if product else values[0]
    want, scale = (x.sum(case.axes, dtype="float64") for x in (terms, np.abs(terms)))
    nbytes = sum(value.nbytes for value in values) + got.nbytes
    return seconds, nbytes, float(np.max(np.abs(got - want) / scale))


def _timed(operation: Reduction, context: Context, arrays: Sequence[Array]) -> tuple[float, np.ndarray]:
    kernels = compile_kernels(operation.kernels(), context)
    cells: list[list[Any]] = [[None]]
    timer, seconds = Timer(), []
    operation.run(arrays, cells, kernels)
    result = to_host(cells[0][0])
    for _ in range(REPEAT):
        timer.begin()
        with listened(timer):
            operation.run(arrays, cells, kernels)
        timer.finish()
        seconds.append(sum(timed.seconds for timed in timer.commands))
    return statistics.median(seconds), result


def copy_bandwidth(context: Context, nbytes: int) -> float:
    """Return the bytes per second that a copy on the device reads and writes."""
    queue = timed_beside(context.queue)
    source, target = (cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE, nbytes) for _ in range(2))
    cl.enqueue_fill_buffer(queue, source, np.ones(1, np.uint8), 0, nbytes)
    events = [cl.enqueue_copy(queue, target, source, byte_count=nbytes) for _ in range(REPEAT)]
    queue.finish()
    return 2 * nbytes / statistics.median(map(seconds_of, events))


@click.command()
@terminal.device_option("gpu")
@click.option("--small", is_flag=True, help="Use small arrays, for a quick test.")
def main(device: str, small: bool) -> None:
    """Measure float32 sums on a device, and compare them with NumPy's in float64."""
    context = Context(device)
    copied = copy_bandwidth(context, 1 << 20 if small else 1 << 28)
    headings = ("sum", "shape", "us", "GB/s", "of a copy", "error")
    caption = f"a copy moves {copied / 1e9:,.0f} GB/s"
    table = terminal.table(*headings, left=("sum", "shape"), title=f"Sums on {context.profile.name}", caption=caption)
    for case in CASES:
        if small:
            case = case.scaled(24)
        seconds, nbytes, error = measure(case, context)
        speed = nbytes / seconds
        figures = f"{seconds * 1e6:,.1f}", f"{speed / 1e9:,.0f}", f"{speed / copied:.0%}", f"{error:.1e}"
        table.add_row(case.name, "x".join(map(str, case.shape)), *figures)
    terminal.console().print(table)


if __name__ == "__main__":
    main()
