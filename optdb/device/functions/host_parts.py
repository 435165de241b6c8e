"""The host computations and checks within a device function."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optdb.codegen.loops.body import Buffer
from optdb.device.functions.shared_values import PairedBuffer, ValueOnDevice, finish
from optdb.device.functions.steps import FunctionMemory
from optdb.device.plans import Node
from optdb.device.tensors import Stored, Tensor
from optdb.numpy_types import HostArray
from optdb.runtime.context import Context


class HostValue:
    """A host value that is not an array, identified by the number of its cell."""

    def __init__(self, number: int) -> None:
        self.number = number


Value = Tensor | HostValue
#: Maps values to results on the host, without modifying the values. Reports print its `str`.
HostWork = Callable[[list[Any]], Sequence[Any]]


class Mismatch(Exception):
    """Raised if a value in a call differs from the value that the trace read."""


@dataclass(eq=False)
class Download:
    """A stored tensor that the host reads."""

    stored: Stored
    mailbox: PairedBuffer


@dataclass(eq=False)
class HostComputation:
    """A host computation within a device function, with results on the device or in host cells."""

    work: HostWork
    #: The source of each input: a host cell's number, a constant array, or a download.
    inputs: Sequence[int | HostArray | Download]
    memory: FunctionMemory
    #: The target of each output: a host cell's number, or a buffer and the `PairedBuffer` that fills it.
    outputs: list[int | tuple[Buffer, PairedBuffer]] = field(default_factory=list)
    #: Total host time of all calls in seconds, excluding waits for the device.
    total_s: float = 0.0

    def values(self) -> list[Any]:
        """Fetch the inputs, run the computation and return its results."""
        fetch(self.memory.context, [x for x in self.inputs if isinstance(x, Download)])
        values: list[Any] = []
        for x in self.inputs:
            if isinstance(x, Download):
                values.append(x.mailbox.take())
            elif isinstance(x, int):
                value = self.memory.cells[x][0]
                values.append(np.asarray(value) if isinstance(value, ValueOnDevice) else value)
            else:
                values.append(x)
        begin = time.perf_counter()
        results = list(self.work(values))
        self.total_s += time.perf_counter() - begin
        return results

    def run(self) -> None:
        cells = self.memory.cells
        for value, output in zip(self.values(), self.outputs, strict=True):
            if isinstance(output, int):
                cells[output][0] = value
                continue
            buffer, mailbox = output
            value = np.asarray(value)
            if value.shape != mailbox.values.shape:
                raise Mismatch
            mailbox.send(value)
            cells[buffer][0] = mailbox.array

    def node(self) -> Node:
        sources = [x.stored.buffer if isinstance(x, Download) else x for x in self.inputs]
        return Node(
            self,
            [x for x in sources if not isinstance(x, np.ndarray)],
            [x if isinstance(x, int) else x[0] for x in self.outputs],
            self.run,
        )

    @property
    def moved_nbytes(self) -> int:
        """The number of bytes that each call transfers to the host and back."""
        down = sum(x.stored.nbytes for x in self.inputs if isinstance(x, Download))
        return down + sum(x[1].host.nbytes for x in self.outputs if not isinstance(x, int))


@dataclass(eq=False)
class Conditions:
    """Conditions that must hold before a call updates an input."""

    values: PairedBuffer
    errors: Sequence[Callable[[], Exception]]
    context: Context

    def run(self) -> None:
        """Fetch the conditions; raise the error of the first condition that does not hold."""
        self.values.request()
        finish(self.context)
        self.check()

    def check(self) -> None:
        """Raise the error of the first condition that does not hold; the conditions must have been fetched."""
        if not self.values.host.all():
            raise self.errors[int(np.argmin(self.values.host))]()


def fetch(context: Context, downloads: Sequence[Download]) -> None:
    """Copy tensors to the host, and wait until they have been copied."""
    for download in downloads:
        download.mailbox.request()
    if downloads:
        finish(context)
