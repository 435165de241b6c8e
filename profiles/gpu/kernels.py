"""Compares the times of single kernels on a GPU with CuPy: ``python -m profiles.gpu.kernels``.

All operations are float32. The first time is that of a step in a call of many steps, by the host's clock. The second
time is that of the kernels of a step, by the device's clock. Both are in milliseconds. CuPy uses tensor cores only with
``CUPY_TF32=1``, and optdb only with ``THEANO_FLAGS=optdb.matmul_precision=default``.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import click
import numpy as np
import theano
import theano.tensor as tt
from rich.table import Table

import optdb
from optdb.opencl.simulator.packing import finish
from optdb.runtime.dispatch import listened
from optdb.runtime.timing import Timer
from profiles import terminal

#: Number of elements of ``exp(x) * y``, number of rows of the summed square matrix, and of the multiplied ones.
LARGE, SIDE, PRODUCTS = 200_000_000, 16384, (1024, 2048, 4096)
SMALL, SMALL_SIDE, SMALL_PRODUCTS = 1000, 32, (8,)
AXES = {"all": None, "rows": 1, "columns": 0}


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).random(shape, dtype=np.float32)


def work_of_theano(large: int, side: int, products: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """Yield pairs of an operation's name and its symbolic result."""
    x, y = (theano.shared(_random(large)) for _ in range(2))
    yield "exp(x) * y", tt.exp(x) * y
    x = theano.shared(_random(side, side))
    for name, axis in AXES.items():
        # Use `keepdims`, because a simulator computes 0-d values on the host, while CuPy computes them on the device.
        yield f"sum, {name}", x.sum(axis=axis, keepdims=axis is None)
    for n in products:
        a, b = (theano.shared(_random(n, n)) for _ in range(2))
        yield f"product, {n}", a.dot(b)


def work_of_cupy(large: int, side: int, products: tuple[int, ...]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield pairs of an operation's name and a function that runs the operation in CuPy; one operation is a copy."""
    import cupy

    fused = cupy.ElementwiseKernel("T x, T y", "T z", "z = exp(x) * y", "exp_times")
    x, y = (cupy.asarray(_random(large)) for _ in range(2))
    z = cupy.empty_like(x)
    yield "exp(x) * y", functools.partial(fused, x, y, z)
    yield "copy", functools.partial(cupy.copyto, z, x)
    x = cupy.asarray(_random(side, side))
    for name, axis in AXES.items():
        yield f"sum, {name}", functools.partial(x.sum, axis=axis)
    for n in products:
        a, b = (cupy.asarray(_random(n, n)) for _ in range(2))
        yield f"product, {n}", functools.partial(cupy.matmul, a, b, out=cupy.empty_like(a))


def time_theano(result: Any, device: str, repeat: int) -> tuple[float, float]:
    """Return the milliseconds that a device takes to compute and store a result, and those that the kernels take."""
    none = np.zeros(list(map(int, result.broadcastable)), result.dtype)
    kept = theano.shared(none, broadcastable=result.broadcastable)
    mode = theano.Mode(linker="py", optimizer="fast_run")  # a simulator computes it
    with optdb.SimulatorOCL(theano.function([], [], updates=[(kept, result)], mode=mode), device) as sim:
        for _ in range(3):
            sim.call_n_times(repeat)
        finish(sim)
        start = time.perf_counter()
        sim.call_n_times(repeat)
        # Wait, because a call without results returns before the device is done.
        finish(sim)
        step = (time.perf_counter() - start) / repeat * 1e3
        return step, statistics.median(_time_kernels(sim) for _ in range(5))


def _time_kernels(sim: optdb.SimulatorOCL) -> float:
    """Return the total milliseconds of all kernels of a step."""
    timer = Timer()
    timer.begin()
    with listened(timer):
        sim.call_n_times(1)
        finish(sim)
    timer.finish()
    return 1e3 * sum(timed.seconds for timed in timer.commands if timed.command.kind == "launch")


def time_cupy(run: Callable[[], Any], repeat: int) -> float:
    """Return the milliseconds of an operation in CuPy, by the host's clock."""
    import cupy

    wait = cupy.cuda.runtime.deviceSynchronize
    times = []
    for _ in range(4):
        start = time.perf_counter()
        for _ in range(repeat):
            run()
        wait()
        times.append((time.perf_counter() - start) / repeat * 1e3)
    return statistics.median(times[1:])


def rate(name: str, milliseconds: float, sizes: tuple[int, int, tuple[int, ...]]) -> str:
    """Return a text with the bytes or the operations per second."""
    large, side, _ = sizes
    if name.startswith("product"):
        return f"{2 * int(name.split()[-1]) ** 3 / milliseconds / 1e9:.1f} TFLOP/s"
    nbytes = {"exp(x) * y": 12 * large, "copy": 8 * large}.get(name, 4 * side**2)
    return f"{nbytes / milliseconds / 1e6:.0f} GB/s"


@click.command()
@terminal.device_option("gpu")
@terminal.count_option("--repeat", 20, "Number of runs of each kernel.")
@click.option("--cupy/--no-cupy", default=find_spec("cupy") is not None, help="Compare with CuPy.")
@click.option("--only", default="", help="Only work whose name contains this text, such as product.")
@click.option("--small", is_flag=True, help="Use small operands, for a quick test.")
def main(device: str, repeat: int, cupy: bool, only: str, small: bool) -> None:
    """Measure elementwise operations, sums and matrix products."""
    if cupy and find_spec("cupy") is None:
        raise click.UsageError("CuPy is not installed. The cure: pip install cupy-cuda12x, or --no-cupy")
    sizes = (SMALL, SMALL_SIDE, SMALL_PRODUCTS) if small else (LARGE, SIDE, PRODUCTS)
    ours = {name: time_theano(result, device, repeat) for name, result in work_of_theano(*sizes) if only in name}
    theirs = {name: time_cupy(run, repeat) for name, run in work_of_cupy(*sizes) if only in name} if cupy else {}
    table = Table("float32", "a step, ms", "rate", "kernels, ms", "rate", *(["CuPy, ms", "rate"] if cupy else []))
    for name in dict.fromkeys([*ours, *theirs]):
        columns = [*ours.get(name, (None, None)), *([theirs.get(name)] if cupy else [])]
        cells = ([f"{time:.4f}", rate(name, time, sizes)] if time is not None else ["", ""] for time in columns)
        table.add_row(name, *(cell for pair in cells for cell in pair))
    terminal.console().print(table)


if __name__ == "__main__":
    main()
