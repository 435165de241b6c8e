"""Builds the programs for merged launches, if necessary in a child process.

A thread that writes and compiles a program would hold the GIL or the driver's lock for seconds. If calls must not wait,
a child process therefore runs this module: it writes and compiles the program, and launches the kernel once. The parent
then loads the binary.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from optdb.codegen.kernels.programs import TranslationUnit
from optdb.device.launches.entries import addresses_of
from optdb.device.launches.programs import PERSISTENT, KernelKey, merged_program
from optdb.runtime import binaries, children
from optdb.runtime.background import unhurried
from optdb.runtime.build import BuildError, make
from optdb.runtime.context import Context
from optdb.runtime.grid_barriers import GridBarrier
from optdb.runtime.library import cl

_logger = logging.getLogger(__name__)

_CHILD = "optdb.device.launches.building"
_CHILD_TIMEOUT_S = 600.0
#: Marks the start of the child's reply (a line of JSON and the source), because drivers may write to the same stream.
_REPLY = b"\noptdb persistent program: "
_BUILT = b"built"

#: The source of a program, and the case number of each kernel.
Written = tuple[str, dict[KernelKey, int]]


@dataclass(frozen=True)
class ProgramDescription:
    """The parameters of a persistent kernel's program; see `merged_program`."""

    kernels: Mapping[KernelKey, int]
    items: int
    barrier: GridBarrier

    def written(self) -> Written:
        return merged_program(PERSISTENT, self.kernels, self.items, self.barrier)

    @property
    def units(self) -> list[TranslationUnit]:
        """The translation units of the kernels, in the order of the JSON description."""
        return sorted({unit for unit, _ in self.kernels}, key=lambda unit: unit.codes)

    @functools.cached_property
    def json(self) -> str:
        """The description as a JSON object, which is identical in every process."""
        number = {unit: index for index, unit in enumerate(self.units)}
        values = {
            "kernels": sorted((number[unit], name, group) for (unit, name), group in self.kernels.items()),
            "items": self.items,
            "barrier": asdict(self.barrier),
        }
        # Encode the long source texts one by one, so that other threads can run.
        codes = ", ".join(json.dumps(unit.codes) for unit in unhurried(number))
        return f'{{"units": [{codes}], {json.dumps(values)[1:]}'

    @classmethod
    def of_json(cls, values: dict[str, Any], context: Context) -> ProgramDescription:
        units = [TranslationUnit(context, tuple(codes), "a unit") for codes in values["units"]]
        return cls(
            {(units[number], name): group for number, name, group in values["kernels"]},
            values["items"],
            GridBarrier(**{**values["barrier"], "options": tuple(values["barrier"]["options"])}),
        )

    def was_built(self, context: Context) -> bool:
        """Return whether an earlier process has built the program; its binary is then probably on disk."""
        folder = binaries.for_device(context.device)
        return folder is not None and folder.has(self._key(context))

    def note_built(self, context: Context) -> None:
        folder = binaries.for_device(context.device)
        if folder is not None:
            folder.save(self._key(context), _BUILT)

    def _key(self, context: Context) -> str:
        return binaries.key_of(context.device, self.json, ("description", *self.barrier.options))


def build(
    context: Context, description: ProgramDescription, written: Written | None = None
) -> tuple[cl.Program, dict[KernelKey, int]]:
    """Build or load a program; return it, and each kernel's case number. Raise BuildError if the build fails."""
    source, cases = description.written() if written is None else written
    program = make(context, source, description.barrier.options, name="the program of merged launches")
    kernel = cl.Kernel(program, PERSISTENT)
    largest = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, context.device)
    if largest < description.items:
        reason = f"a work group of {description.items} items is too large: the device runs {largest} at most"
        raise BuildError(reason, reason, source)
    with logged("the first launch of a persistent kernel"):
        _launch_nothing(context, kernel, description.items)
    return program, cases


def build_in_child(context: Context, description: ProgramDescription) -> tuple[cl.Program, dict[KernelKey, int]]:
    """Build a program in a child process and load it; build it in this process if the child fails."""
    with logged("the process that builds a persistent kernel"):
        written = _built_in_child(context, description)
    with logged("loading a persistent kernel"):
        built = build(context, description, written)
    description.note_built(context)
    return built


def _launch_nothing(context: Context, kernel: cl.Kernel, items: int) -> None:
    """Launch a persistent kernel without any work, so that the driver loads the kernel now, not in a call."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    zeros = cl.Buffer(context.cl_context, flags, hostbuf=np.zeros(16, np.uint64))
    kernel.set_args(zeros, zeros, zeros, *map(np.uint32, (0, 0, 1)), zeros, np.uint32(1))
    queue = cl.CommandQueue(context.cl_context, context.device)
    cl.enqueue_nd_range_kernel(queue, kernel, (items,), (items,)).wait()


def _built_in_child(context: Context, description: ProgramDescription) -> Written | None:
    """Write, build and launch a program in a child process; return the program, or None if the child failed."""
    kept = binaries.current()
    try:
        child = subprocess.run(
            children.command(_CHILD, context.spec, str(kept.folder), str(kept.limit >> 20)),
            env=children.environment(),
            input=description.json.encode(),
            capture_output=True,
            timeout=_CHILD_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        _logger.info("building a persistent kernel in this process: %s", error)
        return None
    _, found, reply = child.stdout.rpartition(_REPLY)
    if child.returncode or not found:
        last = child.stderr.decode(errors="replace").strip().split("\n")[-1]
        _logger.info("building a persistent kernel in this process, since the child process failed: %s", last[:500])
        return None
    head, _, source = reply.partition(b"\n")
    answer = json.loads(head)
    units = description.units
    cases = {(units[number], name): case for number, name, case in answer["cases"]}
    return source[: answer["length"]].decode(), cases


@contextlib.contextmanager
def logged(activity: str) -> Iterator[None]:
    """Log how long the `with` block takes."""
    began = time.perf_counter()
    try:
        yield
    finally:
        _logger.debug("%s took %.1f ms", activity, (time.perf_counter() - began) * 1e3)


def _run_as_child() -> None:
    """Build the program described by the JSON on standard input, and write its case numbers and source.

    The arguments are the device, the folder of built programs, and the folder's maximum size in megabytes.
    """
    spec, folder, megabytes = sys.argv[1:]
    binaries.configure(folder, int(megabytes))
    context = Context(spec)
    description = ProgramDescription.of_json(json.loads(sys.stdin.buffer.read()), context)
    written = source, cases = description.written()
    # The second build loads the binary that the first build has stored, as the parent process will do.
    for _ in range(2):
        program, _ = build(context, description, written)
    # The parent process next launches the kernel that writes addresses, so make the driver cache this kernel.
    addresses_of(context, program, [cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE, 8)])
    number = {unit: index for index, unit in enumerate(description.units)}
    listed = [(number[unit], name, case) for (unit, name), case in cases.items()]
    content = source.encode()
    head = json.dumps({"cases": listed, "length": len(content)}).encode()
    sys.stdout.buffer.write(b"".join([_REPLY, head, b"\n", content]))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    _run_as_child()
