"""Measures functions with Scan in mode OPENCL and with PyTensor's default: ``python -m profiles.pytensor.loops``.

With ``--jax``, mode OPENCL is compared with the same functions written for JAX instead; JAX must be installed.
"""

from __future__ import annotations

import functools
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
import pytensor
import pytensor.tensor as pt
from rich.table import Table

import optdb.pytensor  # noqa: F401  (registers the mode)
from profiles import terminal

__all__ = ["LOOPS", "LoopCase", "LoopTimes", "main", "measure"]

MODES = {"OPENCL": "OPENCL", "default": None}
#: The inputs and outputs of a function, and arguments to call it with.
Case = tuple[list[Any], list[Any], list[Any]]


@dataclass(frozen=True)
class LoopTimes:
    """The median times of a call of a function in one mode or in JAX.

    `first_s` includes compilation and the first call. `difference` is the largest difference from the first
    configuration's outputs, relative to the largest number of an output.
    """

    name: str
    side: str
    cpu_ms: float
    wall_ms: float
    first_s: float
    difference: float


def garch(steps: int) -> Case:
    """Return the log density of a GARCH(1, 1) process and its gradient."""
    returns = np.random.default_rng(1).normal(size=steps)
    x = pt.vector("x")
    mean, level, shock, memory = x[0], pt.exp(x[1]), pt.sigmoid(x[2]), pt.sigmoid(x[3])
    variance = pytensor.scan(
        lambda value, last: level + shock * (value - mean) ** 2 + memory * last,
        sequences=[pt.as_tensor(returns)],
        outputs_info=[pt.ones(())],
        return_updates=False,
    )
    density = -0.5 * ((returns - mean) ** 2 / variance + pt.log(variance)).sum()
    return [x], [density, pt.grad(density, x)], [np.array([0.1, -1.0, 0.2, 0.3])]


def lstm(steps: int, rows: int, width: int, has_gradient: bool) -> Case:
    """Return the loss of an LSTM in single precision, and the gradient with respect to the weights."""
    rng = np.random.default_rng(1)
    x = pt.tensor("x", shape=(None, rows, width), dtype="float32")
    shapes = [(width, 4 * width), (width, 4 * width), (4 * width,)]
    weights = [pytensor.shared((0.05 * rng.normal(size=shape)).astype("float32")) for shape in shapes]

    def step(row: Any, hidden: Any, cell: Any, of_row: Any, of_hidden: Any, bias: Any) -> tuple[Any, Any]:
        gates = pt.dot(row, of_row) + pt.dot(hidden, of_hidden) + bias
        into, kept, out, new = [gates[:, width * n : width * (n + 1)] for n in range(4)]
        cell = pt.sigmoid(kept) * cell + pt.sigmoid(into) * pt.tanh(new)
        return pt.sigmoid(out) * pt.tanh(cell), cell

    start = pt.zeros((rows, width), "float32")
    states, _ = pytensor.scan(
        step, sequences=[x], outputs_info=[start, start], non_sequences=weights, return_updates=False
    )
    loss = (states[-1] ** 2).sum()
    outputs = [loss, *pt.grad(loss, weights)] if has_gradient else [loss]
    return [x], outputs, [rng.normal(size=(steps, rows, width)).astype("float32")]


def garch_by_jax(steps: int) -> Callable[..., Any]:
    """Return the function `garch` written for JAX, in double precision."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    returns = jnp.asarray(np.random.default_rng(1).normal(size=steps))

    def density(x: Any) -> Any:
        mean, level, shock, memory = x[0], jnp.exp(x[1]), jax.nn.sigmoid(x[2]), jax.nn.sigmoid(x[3])

        def step(last: Any, value: Any) -> tuple[Any, Any]:
            following = level + shock * (value - mean) ** 2 + memory * last
            return following, following

        variance = jax.lax.scan(step, jnp.ones(()), returns)[1]
        return -0.5 * ((returns - mean) ** 2 / variance + jnp.log(variance)).sum()

    return jax.jit(jax.value_and_grad(density))


def lstm_by_jax(rows: int, width: int, has_gradient: bool) -> Callable[..., Any]:
    """Return the function `lstm` written for JAX, with full single precision."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", "highest")
    rng = np.random.default_rng(1)
    shapes = [(width, 4 * width), (width, 4 * width), (4 * width,)]
    weights = [jnp.asarray((0.05 * rng.normal(size=shape)).astype("float32")) for shape in shapes]

    def loss(weights: Any, x: Any) -> Any:
        of_row, of_hidden, bias = weights

        def step(states: tuple[Any, Any], row: Any) -> tuple[tuple[Any, Any], None]:
            hidden, cell = states
            into, kept, out, new = jnp.split(row @ of_row + hidden @ of_hidden + bias, 4, axis=1)
            cell = jax.nn.sigmoid(kept) * cell + jax.nn.sigmoid(into) * jnp.tanh(new)
            return (jax.nn.sigmoid(out) * jnp.tanh(cell), cell), None

        start = jnp.zeros((rows, width), "float32")
        return (jax.lax.scan(step, (start, start), x)[0][0] ** 2).sum()

    compiled = jax.jit(jax.value_and_grad(loss) if has_gradient else loss)
    return functools.partial(compiled, weights)


@dataclass(frozen=True)
class LoopCase:
    """The two functions that build a function with loops for PyTensor and for JAX."""

    build: Callable[[], Case]
    build_for_jax: Callable[[], Callable[..., Any]]


LOOPS: dict[str, LoopCase] = {
    **{
        f"GARCH, {steps:,} steps": LoopCase(functools.partial(garch, steps), functools.partial(garch_by_jax, steps))
        for steps in (200, 20_000)
    },
    **{
        f"LSTM, {steps} x {rows} x {width}, {'gradient' if has_gradient else 'forward'}": LoopCase(
            functools.partial(lstm, steps, rows, width, has_gradient),
            functools.partial(lstm_by_jax, rows, width, has_gradient),
        )
        for steps, rows, width in ((50, 32, 128), (50, 128, 512))
        for has_gradient in (False, True)
    },
}


def measure(
    name: str, turns: int = 7, turn_s: float = 0.5, settle_s: float = 5.0, has_jax: bool = False
) -> list[LoopTimes]:
    """Call a function of `LOOPS` in mode OPENCL and in the default mode (with `has_jax`, in JAX) in turn."""
    case = LOOPS[name]
    inputs, outputs, arguments = case.build()
    sides: dict[str, Callable[[], Callable[..., Any]]] = {
        side: functools.partial(pytensor.function, inputs, outputs, mode=mode) for side, mode in MODES.items()
    }
    if has_jax:
        del sides["default"]
        sides["JAX"] = lambda: _blocking(case.build_for_jax())
    functions, firsts, results = {}, {}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for side, build in sides.items():
            begun = time.perf_counter()
            functions[side] = build()
            results[side] = functions[side](*arguments)
            firsts[side] = time.perf_counter() - begun
        for function in functions.values():
            _ms_of_call(function, arguments, settle_s)
        taken: dict[str, list[tuple[float, float]]] = {side: [] for side in functions}
        for _ in range(turns):
            for side, function in functions.items():
                taken[side].append(_ms_of_call(function, arguments, turn_s))
    first = next(iter(results.values()))
    measured = []
    for side, turns_of_side in taken.items():
        cpu_ms, wall_ms = (statistics.median(times) for times in zip(*turns_of_side))
        measured.append(LoopTimes(name, side, cpu_ms, wall_ms, firsts[side], _difference(first, results[side])))
    return measured


def _blocking(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Return a function that calls a JAX function, and returns its outputs as one list of NumPy arrays."""
    import jax

    return lambda *args: [np.asarray(x) for x in jax.tree_util.tree_leaves(function(*args))]


def _difference(expected: Any, got: Any) -> float:
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(expected, got, strict=True)]
    return max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs)


def _ms_of_call(function: Any, arguments: list[Any], seconds: float) -> tuple[float, float]:
    """Call a function for some seconds; return the mean CPU milliseconds and the mean wall milliseconds of a call."""
    begun, begun_cpu, calls = time.perf_counter(), time.process_time(), 0
    while not calls or time.perf_counter() - begun < seconds:
        function(*arguments)
        calls += 1
    return 1e3 * (time.process_time() - begun_cpu) / calls, 1e3 * (time.perf_counter() - begun) / calls


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice(list(LOOPS)))
@terminal.count_option("--turns", 7, "Number of runs; the median is shown.")
@click.option("--settle", default=5.0, show_default=True, help="Seconds of warm-up calls.")
@click.option("--jax", "has_jax", is_flag=True, help="Compare with JAX instead of PyTensor's default mode.")
@terminal.json_option
def main(names: tuple[str, ...], turns: int, settle: float, has_jax: bool, json_file: Any) -> None:
    """Measure the milliseconds per call of functions with loops; the two configurations take turns."""
    table = Table("loop", "side", "CPU ms a call", "ms a call", "s until the first", "difference")
    table.title = "Functions of Scan"
    loops: list[LoopTimes] = []
    for name in names or LOOPS:
        measured = measure(name, turns, settle_s=settle, has_jax=has_jax)
        loops += measured
        for loop in measured:
            times = [f"{loop.cpu_ms:.3f}", f"{loop.wall_ms:.3f}", f"{loop.first_s:.1f}", f"{loop.difference:.0e}"]
            table.add_row(loop.name, loop.side, *times)
    terminal.console().print(table)
    terminal.write_json(loops, json_file)


if __name__ == "__main__":
    main()
