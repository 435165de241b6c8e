"""Runs a captured file on a device and tells what it takes: ``python replay.py FILE [--repeat N]``.

It needs NumPy and PyOpenCL, and nothing else: neither Theano nor optdb. The file (see ``capture``) holds programs,
buffers and steps. A step is a launch, a fill, or a copy of bytes; they go to one queue, in order.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl


@dataclass
class Replay:
    """A captured file, made ready on a device.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it runs.
    plan : dict
        The file's description.
    arrays : mapping
        The file's arrays, by name.
    """

    queue: cl.CommandQueue
    plan: dict[str, Any]
    arrays: Any
    built: float = 0.0
    buffers: list[cl.Buffer] = field(default_factory=list)
    _steps: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        start = time.perf_counter()
        programs = [cl.Program(self.queue.context, source).build() for source in self.plan["programs"]]
        self.built = time.perf_counter() - start
        self.buffers = [cl.Buffer(self.queue.context, cl.mem_flags.READ_WRITE, max(n, 4)) for n in self.plan["buffers"]]
        self._steps = [self._step(step, programs) for step in self.plan["steps"]]

    def reset(self) -> None:
        """Give buffers the values that they had before the first step; what had none gets zeros."""
        for buffer in self.buffers:
            cl.enqueue_fill_buffer(self.queue, buffer, np.uint8(0), 0, buffer.size)
        for number, name in self.plan["initial"].items():
            buffer = self.buffers[int(number)]
            values = uniform(buffer.size // 4) if name is None else self.arrays[name]
            cl.enqueue_copy(self.queue, buffer, values, is_blocking=True)

    def run(self) -> None:
        """Enqueue all steps once."""
        for step in self._steps:
            step()

    def value(self, name: str) -> np.ndarray:
        """Return one of the results that the file names."""
        where = self.plan["results"][name]
        out = np.empty(where["shape"], where["dtype"])
        cl.enqueue_copy(self.queue, out, self.buffers[where["buffer"]], src_offset=where["offset"], is_blocking=True)
        return out

    def _step(self, step: dict[str, Any], programs: list[cl.Program]) -> Any:
        if step["kind"] == "launch":
            return self._launch(step, programs)
        target = self.buffers[step["target"]]
        if step["kind"] == "fill":
            pattern = np.frombuffer(bytes.fromhex(step["pattern"]), np.uint8)
            return lambda: cl.enqueue_fill_buffer(self.queue, target, pattern, step["offset"], step["nbytes"])
        if step["kind"] == "upload":
            data = self.arrays[step["data"]]
            return lambda: cl.enqueue_copy(self.queue, target, data, dst_offset=step["offset"], is_blocking=False)
        source = self.buffers[step["source"]]
        return lambda: cl.enqueue_copy(
            self.queue,
            target,
            source,
            byte_count=step["nbytes"],
            src_offset=step["source_offset"],
            dst_offset=step["offset"],
        )

    def _launch(self, step: dict[str, Any], programs: list[cl.Program]) -> Any:
        # A kernel object of its own for each launch: its arguments stay set.
        kernel = cl.Kernel(programs[step["program"]], step["kernel"])
        for index, arg in enumerate(step["args"]):
            kernel.set_arg(index, self._argument(arg))
        return lambda: cl.enqueue_nd_range_kernel(self.queue, kernel, step["items"], step["group"])

    def _argument(self, arg: dict[str, Any] | None) -> Any:
        if arg is None:
            return None
        if "buffer" in arg:
            return self.buffers[arg["buffer"]]
        if "local" in arg:
            return cl.LocalMemory(arg["local"])
        return np.frombuffer(bytes.fromhex(arg["bytes"]), arg["dtype"])[0]


def uniform(n: int) -> np.ndarray:
    """Return `n` numbers of float32 between 0 and 1, the same each time."""
    return np.random.default_rng(1).random(n, np.float32)


def load(path: str | Path) -> tuple[dict[str, Any], Any]:
    """Return the description and the arrays of a captured file."""
    arrays = np.load(path, allow_pickle=False)
    return json.loads(str(arrays["plan"])), arrays


def device() -> cl.Device:
    """Return the first GPU, or the first device of any kind."""
    found = [d for p in cl.get_platforms() for d in p.get_devices()]
    return next((d for d in found if d.type & cl.device_type.GPU), found[0])


def timed(replay: Replay, repeat: int) -> list[float]:
    """Return seconds of several runs, each from an idle device to an idle device."""
    seconds = []
    for _ in range(repeat):
        replay.queue.finish()
        start = time.perf_counter()
        replay.run()
        replay.queue.finish()
        seconds.append(time.perf_counter() - start)
    return seconds


def by_kernel(replay: Replay) -> dict[str, float]:
    """Return the seconds on the device of each kernel's launches, from a queue with a clock."""
    queue = cl.CommandQueue(replay.queue.context, replay.queue.device, cl.command_queue_properties.PROFILING_ENABLE)
    plain, replay.queue = replay.queue, queue
    events = []
    try:
        for step, enqueue in zip(replay.plan["steps"], replay._steps):
            events.append((step.get("label") or step.get("kernel") or step["kind"], enqueue()))
        queue.finish()
    finally:
        replay.queue = plain
    spent: dict[str, float] = {}
    for name, event in events:
        spent[name] = spent.get(name, 0.0) + (event.profile.end - event.profile.start) * 1e-9
    return dict(sorted(spent.items(), key=lambda item: -item[1]))


def main() -> None:
    """Run a file, and print what it takes as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args()
    found = device()
    replay = Replay(cl.CommandQueue(cl.Context([found]), found), *load(args.file))
    replay.reset()
    first = timed(replay, 1)[0]
    results = {
        name: {"sum": float(np.sum(replay.value(name), dtype=np.float64)), "captured": captured["sum"]}
        for name, captured in replay.plan["results"].items()
    }
    seconds = timed(replay, args.repeat)
    summary = {
        "file": Path(args.file).name,
        "device": found.name.strip(),
        "launches": sum(step["kind"] == "launch" for step in replay.plan["steps"]),
        "build_seconds": replay.built,
        "first_seconds": first,
        "median_seconds": statistics.median(seconds),
        "results_after_one_run": results,
        "kernels": dict(list(by_kernel(replay).items())[:25]),
    }
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
