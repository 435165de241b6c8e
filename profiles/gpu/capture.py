"""Writes down what functions launch on a GPU: ``python -m profiles.gpu.capture FOLDER``.

The functions run once on the device that there is, by the kernels for GPUs, and what they put into the queue is
recorded. ``replay`` runs the files elsewhere. Each has the results of this run, to compare.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyopencl as cl
import theano
import theano.tensor as tt

from optdb.opencl import get_context
from optdb.opencl.planning import PlannedVM
from optdb.opencl.planning.budget import BudgetedRecorder
from optdb.opencl.planning.recording import Recording, record
from optdb.runtime.commands import (
    Command,
    EnqueueCopy,
    EnqueueFill,
    EnqueueKernel,
    EnqueueUpload,
    Memory,
)
from optdb.runtime.recording import ArrayLayout
from profiles import models
from profiles.gpu.replay import uniform
from profiles.gpu.rivals import LARGE, PRODUCTS, RESNETS, SIDE
from profiles.lift import default_context

#: In bytes: of larger arrays, files say only that they are `uniform`.
LARGEST_KEPT = 1 << 24


class Capture:
    """The description of a recording, and its arrays."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._buffers: dict[Memory, int] = {}
        self._programs: dict[str, int] = {}
        self._before: dict[int, np.ndarray] = {}

    def note(self, queue: cl.CommandQueue, buffer: cl.Buffer) -> None:
        """Remember what is in a buffer before the function runs."""
        self._before[buffer.int_ptr] = _content(queue, buffer)

    def write(self, path: Path, recording: Recording, results: dict[str, tuple[ArrayLayout, float]]) -> None:
        """Write a file.

        Parameters
        ----------
        path : Path
            Where to.
        recording : Recording
            What the function did.
        results : dict
            Name of a result to how it lies, and the sum of its elements.
        """
        steps = [self._step(command) for segment in recording.segments for command in segment.commands]
        initial = {}
        for memory, number in self._buffers.items():
            if memory.buffer is None:
                continue
            if memory.nbytes > LARGEST_KEPT:
                initial[number] = None
                continue
            content = self._before.get(memory.buffer.int_ptr)
            initial[number] = self._array(content if content is not None else self._constant(memory, recording))
        described = {
            name: {
                "buffer": self._number(layout.memory),
                "offset": layout.offset,
                "shape": list(layout.shape),
                "dtype": layout.dtype.name,
                "sum": total,
            }
            for name, (layout, total) in results.items()
        }
        plan = {
            "programs": list(self._programs),
            "buffers": [memory.nbytes for memory in self._buffers],
            "initial": initial,
            "steps": steps,
            "results": described,
        }
        np.savez_compressed(path, plan=np.array(json.dumps(plan)), **self.arrays)

    def _step(self, command: Command) -> dict[str, Any]:
        if isinstance(command, EnqueueKernel):
            return self._launch(command)
        step = {"target": self._number(command.target)}
        if isinstance(command, EnqueueFill):
            pattern = np.asarray(command.pattern).tobytes().hex()
            return {**step, "kind": "fill", "offset": command.offset, "nbytes": command.nbytes, "pattern": pattern}
        if isinstance(command, EnqueueUpload):
            return {**step, "kind": "upload", "offset": command.offset, "data": self._array(command.value)}
        assert isinstance(command, EnqueueCopy)
        return {
            **step,
            "kind": "copy",
            "offset": command.target_offset,
            "source": self._number(command.source),
            "source_offset": command.source_offset,
            "nbytes": command.nbytes,
        }

    def _launch(self, command: EnqueueKernel) -> dict[str, Any]:
        source = command.kernel.program.get_info(cl.program_info.SOURCE)
        return {
            "kind": "launch",
            "program": self._programs.setdefault(source, len(self._programs)),
            "kernel": command.kernel.function_name,
            "items": list(command.global_size),
            "group": None if command.local_size is None else list(command.local_size),
            "args": [self._argument(arg) for arg in command.args],
        }

    def _argument(self, arg: Any) -> dict[str, Any] | None:
        if arg is None:
            return None
        if isinstance(arg, Memory):
            return {"buffer": self._number(arg)}
        if isinstance(arg, cl.LocalMemory):
            return {"local": arg.size}
        return {"bytes": arg.tobytes().hex(), "dtype": arg.dtype.str}

    def _number(self, memory: Memory) -> int:
        return self._buffers.setdefault(memory, len(self._buffers))

    def _array(self, value: np.ndarray) -> str:
        name = f"a{len(self.arrays)}"
        self.arrays[name] = np.ascontiguousarray(value)
        return name

    def _constant(self, memory: Memory, recording: Recording) -> np.ndarray:
        queue = next(layout.queue for layout in recording.layouts.values())
        return _content(queue, memory.buffer)


def _content(queue: cl.CommandQueue, buffer: cl.Buffer) -> np.ndarray:
    content = np.empty(buffer.size, np.uint8)
    cl.enqueue_copy(queue, content, buffer)
    return content


def capture(path: Path, function: Any, data: list[np.ndarray]) -> None:
    """Run a function once, and write down what it launches.

    Parameters
    ----------
    path : Path
        Where to.
    function : theano.compile.Function
        On the device; its outputs are arrays there, or one number that is downloaded.
    data : list of numpy.ndarray
        Its inputs.
    """
    vm = function.fn
    if not isinstance(vm, PlannedVM):
        raise click.ClickException(f"{path.name}: nothing of the function is on the device")
    linked, context = vm.linked, get_context()
    for container, value in zip(function.input_storage, data):
        container.storage[0] = container.type.filter(value)
    found = Capture()
    for var in linked.inputs:
        value = linked.value(var)
        if getattr(value, "base_data", None) is not None:
            found.note(context.queue, value.base_data)
    recording = record(linked, BudgetedRecorder(linked))
    results = {}
    for number, out in enumerate(linked.outputs[: function.n_returned_outputs]):
        there = out if out in recording.layouts else out.owner.inputs[0]
        results[f"output {number}"] = (recording.layouts[there], float(np.sum(np.asarray(linked.value(out)))))
    found.write(path, recording, results)


def mode() -> Any:
    """Return the mode of functions on the device."""
    return theano.compile.get_default_mode().including("opencl")


def on_device(name: str, *shape: int) -> Any:
    """Return an array on the device, of numbers between 0 and 1."""
    return theano.shared(uniform(int(np.prod(shape))).reshape(shape), name=name, target=get_name())


def get_name() -> str:
    """Return the name of the default context."""
    from optdb.opencl import contexts

    return contexts.default


def parts(small: bool) -> dict[str, Callable[[], Any]]:
    """Return functions that compute what ``rivals`` computes by CuPy, by name."""
    n, side = (1000, 64) if small else (LARGE, SIDE)

    def elementwise() -> Any:
        return tt.exp(on_device("x", n)) * on_device("y", n)

    def total(axis: int | None) -> Callable[[], Any]:
        return lambda: on_device("x", side, side).sum(axis=axis, acc_dtype="float32")

    def product(size: int) -> Callable[[], Any]:
        return lambda: on_device("a", size, size).dot(on_device("b", size, size))

    found = {f"exp_times_{n}": elementwise}
    found |= {f"sum_{name}_{side}": total(axis) for name, axis in (("all", None), ("rows", 1), ("columns", 0))}
    return found | {f"matmul_{size}": product(size) for size in ((64,) if small else PRODUCTS)}


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--small", is_flag=True, help="Tiny arrays, to try whether it works.")
@click.option("--units", default=132, show_default=True, help="Compute units of the GPU that the work is cut for.")
def main(folder: Path, small: bool, units: int) -> None:
    """Write what functions launch on a GPU into files in FOLDER."""
    from optdb.opencl import as_opencl_variable

    folder.mkdir(parents=True, exist_ok=True)
    with default_context(), theano.change_flags(floatX="float32"):
        context = get_context()
        before = context.profile
        context.profile = before.as_kind("gpu", units)
        try:
            for name, build in parts(small).items():
                function = theano.function([], as_opencl_variable(build(), get_name()), mode=mode())
                capture(folder / f"{name}.npz", function, [])
            for sizes in RESNETS:
                chosen = {**sizes, "n": 1, "batch": 2} if small else sizes
                model = models.build("cifar_resnet", **chosen)
                function = theano.function(model.inputs, model.outputs, updates=model.updates, mode=mode())
                capture(folder / f"resnet_{chosen['width']}.npz", function, model.data)
        finally:
            context.profile = before


if __name__ == "__main__":
    main()
