"""Measures the Python time of a plan per kernel, zero-copy calls of simulators, and memory that stays allocated.

``python -m profiles.simulator --help`` lists the commands.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np
import pyopencl as cl
import theano
import theano.tensor as tt
from rich.table import Table

import optdb
from optdb.opencl import contexts, get_context
from optdb.runtime import host_buffers
from optdb.runtime.commands import CommandList
from optdb.runtime.context import Context
from profiles import terminal
from profiles.stopwatch import race

#: Number of timed loops of calls, and seconds that each loop takes.
_LOOPS, _LOOP = 5, 0.1


@click.group()
def main() -> None:
    """Measure how simulators run."""


@main.command()
@terminal.count_option("--kernels", 100, "Number of kernels in the chain.")
@terminal.count_option("--elements", 1000, "Number of elements of each array.")
@click.option(
    "--tanh/--no-tanh", default=False, show_default=True, help="Whether every other kernel computes tanh, or a sum."
)
@terminal.count_option("--repeat", 200, "Number of turns of each contender.")
@terminal.device_option()
def overhead(kernels: int, elements: int, tanh: bool, repeat: int, device: str) -> None:
    """Compare the time of a plan with that of bound commands, and with that of Theano's C code."""
    contexts.register("measured", device)
    context = get_context("measured")
    chains = {
        "device": _chain(kernels, elements, tanh, "measured", "never"),
        "merged": _chain(kernels, elements, tanh, "measured", "always"),
        "C code": _chain(kernels, elements, tanh, None, "never"),
    }
    values = [np.asarray(function()) for function in chains.values()]
    for value in values:
        np.testing.assert_allclose(value, values[0], rtol=1e-4)
    (plan,) = chains["device"].fn.plans
    bound = plan.unconditional_commands()
    queue = context.queue
    host = {
        "plan": chains["device"].fn,
        "bound": lambda: _enqueued(bound),
        "pyopencl": lambda: _enqueued_by_pyopencl(bound),
    }
    enqueued: dict[str, list[float]] = {name: [] for name in host}
    for _ in range(repeat):
        for name, enqueue in host.items():
            with _held(context):
                start = time.perf_counter()
                enqueue()
                enqueued[name].append(time.perf_counter() - start)
    contenders: dict[str, Callable[[], object]] = {name: _waiting(function) for name, function in chains.items()}
    contenders["bound"] = lambda: _finished(bound, queue)
    taking_turns = race(contenders, repeat)
    looped = {name: race({name: contender}, _LOOPS, _LOOP)[name] for name, contender in contenders.items()}
    each = {name: np.median(seconds) / plan.commands * 1e6 for name, seconds in enqueued.items()}
    table = Table("microseconds", "", title=f"{plan.commands} kernels, {elements} elements, {context.device.name}")
    table.add_row("plan, Python's share for each kernel", f"{each['plan']:.2f}")
    table.add_row("bound commands, the same", f"{each['bound']:.2f}")
    table.add_row("PyOpenCL with an event each, the same", f"{each['pyopencl']:.2f}")
    table.add_row("ratio (goal: at most 1.5)", f"{each['plan'] / each['bound']:.2f}")
    terminal.console().print(table)
    table = Table("a call, in microseconds", "in turns", "in a loop", title="medians; results are downloaded")
    for name, description in _DESCRIPTIONS.items():
        medians = [np.median(seconds[name]) * 1e6 for seconds in (taking_turns, looped)]
        table.add_row(description, *(f"{median:.0f}" for median in medians))
    terminal.console().print(table)


@main.command()
@click.option(
    "--megabytes", type=click.FloatRange(min=0, min_open=True), default=8, show_default=True, help="Size of each array."
)
@terminal.count_option("--repeat", 50, "Number of turns of each contender.")
@terminal.device_option()
def copies(megabytes: float, repeat: int, device: str) -> None:
    """Compare zero-copy calls with calls that copy arguments and results."""
    x, y = tt.fvectors("xy")
    functions = {
        "x * 2 + 1": ([x], x * 2 + 1),
        "x * 2 + 1, borrow=True": ([x], theano.Out(x * 2 + 1, borrow=True)),
        "x * y": ([x, y], x * y),
        "tanh(x)": ([x], tt.tanh(x)),
        "x.sum()": ([x], x.sum()),
    }
    data = np.linspace(0, 1, int(megabytes * 2**20) // 4, dtype="float32")
    arguments = data, data + 1
    seconds = {}
    for name, (inputs, output) in functions.items():
        f = theano.function(inputs, output, mode=theano.Mode(linker="py"))
        calls = {
            how: _worth(worth, optdb.SimulatorOCL(f, device=device), *arguments[: len(inputs)])
            for how, worth in {"zero-copy": 1, "copied": 1 << 62}.items()
        }
        for call in [*calls.values()] * 4:
            call()
        seconds[name] = race(calls, repeat)
    by_numpy = np.median(race({"copy": data.copy}, repeat)["copy"])
    title = f"a call, in milliseconds (medians); NumPy copies {megabytes:g} MB in {by_numpy * 1e3:.2f}"
    table = Table(f"{megabytes:g} MB each", "zero-copy", "copied", title=title)
    for name, found in seconds.items():
        table.add_row(name, *(f"{np.median(one) * 1e3:.2f}" for one in found.values()))
    terminal.console().print(table)


def _worth(nbytes: int, sim: optdb.SimulatorOCL, *args: np.ndarray) -> Callable[[], object]:
    """Return a function that calls a simulator; the calls copy arguments and results of fewer bytes than `nbytes`."""

    def call() -> object:
        host_buffers.MIN_ZERO_COPY_BYTES = nbytes
        return sim(*args)

    return call


_DESCRIPTIONS = {
    "device": "on the device, launch by launch",
    "merged": "on the device, launches merged",
    "C code": "by Theano's virtual machine in C",
    "bound": "the same number of bound commands, with a wait",
}


def _waiting(function: Callable[[], object]) -> Callable[[], object]:
    """Return a function that calls another function, and waits for the result."""
    return lambda: np.asarray(function())


def _chain(kernels: int, elements: int, tanh: bool, target: str | None, merge: str) -> theano.compile.Function:
    """Return a function that computes a chain of separate operations; some calls have already made its plan."""
    with theano.change_flags(**{"optdb.merge_launches": merge}):
        function = _compiled_chain(kernels, elements, tanh, target)
        for _ in range(8):
            function()
    return function


def _compiled_chain(kernels: int, elements: int, tanh: bool, target: str | None) -> theano.compile.Function:
    start = np.linspace(-1, 1, elements, dtype="float32")
    value = theano.shared(start, "x", target=target) if target else theano.shared(start, "x")
    for number in range(kernels):
        other = tt.tanh(value) if tanh else value + np.float32(0.25)
        value = other if number % 2 else value * np.float32(0.9)
    mode = theano.compile.get_default_mode().excluding("fusion")
    if target is None:
        in_c = theano.Mode(theano.gof.vm.VM_Linker(use_cloop=True), mode.provided_optimizer)
        return theano.function([], theano.Out(value, borrow=True), mode=in_c)
    # The result stays on the device, because the download is not part of a plan's cost.
    return theano.function([], theano.Out(value.transfer(target), borrow=True), mode=mode.including("opencl"))


def _enqueued(bound: CommandList) -> None:
    bound.enqueue()


def _enqueued_by_pyopencl(bound: CommandList) -> None:
    for command in bound:
        command.enqueue_on(command.queue)


@contextmanager
def _held(context: Context) -> Iterator[None]:
    """Delay commands that are enqueued in the block to its end, because they would slow down the timed code."""
    context.queue.finish()
    gate = cl.UserEvent(context.cl_context)
    cl.enqueue_barrier(context.queue, wait_for=[gate])
    try:
        yield
    finally:
        gate.set_status(cl.command_execution_status.COMPLETE)
        context.queue.finish()


def _finished(bound: CommandList, queue: cl.CommandQueue) -> None:
    _enqueued(bound)
    queue.finish()


@main.command()
@terminal.count_option("--calls", 100_000, "Number of calls.", least=100)
@terminal.count_option("--shapes", 30, "Number of batch sizes.")
@terminal.device_option()
def soak(calls: int, shapes: int, device: str) -> None:
    """Call a training step many times with arguments of changing shapes."""
    rng = np.random.RandomState(0)
    x, y = tt.fmatrix("x"), tt.ivector("y")
    w = theano.shared(rng.randn(20, 5).astype("float32"), "w")
    loss = tt.nnet.categorical_crossentropy(tt.nnet.softmax(x.dot(w)), y).mean()
    updates = [(w, w - np.float32(0.01) * tt.grad(loss, w))]
    f = theano.function([x, y], loss, updates=updates, mode=theano.Mode(linker="py"))
    sim = optdb.SimulatorOCL(f, device=device)
    data, labels = rng.randn(shapes, 20).astype("float32"), rng.randint(0, 5, shapes).astype("int32")
    table = Table("calls", "resident bytes", "objects of Python")
    for number in range(1, calls + 1):
        # Make several calls with each shape, so that plans are made and discarded.
        size = 1 + (number // 5 * 7) % shapes
        result = sim(data[:size], labels[:size])
        if number in (calls // 20, calls // 10, calls // 4, calls // 2, calls):
            gc.collect()
            table.add_row(f"{number:,}", f"{_resident():,}", f"{len(gc.get_objects()):,}")
    assert np.isfinite(result)
    terminal.console().print(table)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
