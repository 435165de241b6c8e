"""Defines cases and runs: a case is an op with inputs, and a run selects dtypes and a memory layout of the inputs.

A case is run once for each combination of the arrays' dtypes and of a memory layout; see `Run`.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from memcheck.layouts import LAYOUTS, PLAIN, TURNED

FLOATS = ("float32", "float16", "float64")


@dataclass(frozen=True)
class Given:
    """Describes a device array: its shape (axes of length 1 broadcast), its possible dtypes and its values.

    By default, the values are small numbers other than 0.
    """

    shape: tuple[int, ...]
    dtypes: tuple[str, ...]
    values: np.ndarray | None = field(default=None, compare=False)

    def dtype(self, turn: int) -> str:
        """Return the dtype with index `turn`; if the array has fewer dtypes, they repeat."""
        return self.dtypes[turn % len(self.dtypes)]

    def value(self, turn: int) -> np.ndarray:
        """Return the array in the dtype with index `turn`; each call returns the same values."""
        dtype = self.dtype(turn)
        if self.values is not None:
            return self.values.astype(dtype)
        rng = np.random.default_rng(len(self.shape))
        if dtype == "bool" or dtype.startswith(("int", "uint")):
            return rng.integers(1, 4, self.shape).astype(dtype)
        return rng.uniform(0.25, 1, self.shape).astype(dtype)

    def __str__(self) -> str:
        return "x".join(map(str, self.shape)) or "one"


def floats(*shape: int) -> Given:
    """Return the description of an array that is run in each of the float dtypes."""
    return Given(shape, FLOATS)


def wide(*shape: int) -> Given:
    """Return the description of an array that is run in float32 and float64, but not in float16."""
    return Given(shape, ("float32", "float64"))


def array(dtype: str, *shape: int) -> Given:
    """Return the description of an array that is run in a single dtype."""
    return Given(shape, (dtype,))


def values(value: Any, dtype: str | None = None) -> Given:
    """Return the description of an array with given values, such as indexes."""
    value = np.asarray(value, dtype)
    return Given(value.shape, (value.dtype.name,), value)


@dataclass(frozen=True)
class Number:
    """An input that is a number on the host; it has the dtype of the case's first array."""

    value: float

    def __str__(self) -> str:
        return str(self.value)


class Case:
    """An op (or a function that applies several device ops), and its inputs.

    Each input is a device array (`floats`, `array`, `values`) or a host value: a `Number` with the arrays' dtype, any
    other number, a NumPy array, or None.
    """

    def __init__(self, op: Callable[..., Any], *inputs: Any) -> None:
        self.op = op
        self.inputs = inputs

    @property
    def arrays(self) -> list[Given]:
        """The device arrays among the inputs."""
        return [x for x in self.inputs if isinstance(x, Given)]

    def runs(self) -> Iterator[Run]:
        """Return all runs of the case."""
        turns = max((len(x.dtypes) for x in self.arrays), default=1)
        # If no array has more than one element, all layouts are equal.
        layouts: tuple[str, ...] = LAYOUTS if any(np.prod(x.shape) > 1 for x in self.arrays) else (PLAIN,)
        if all(len(x.shape) < 2 for x in self.arrays):
            layouts = tuple(layout for layout in layouts if layout != TURNED)
        return (Run(self, turn, layout) for turn, layout in itertools.product(range(turns), layouts))

    def __str__(self) -> str:
        name = self.op.__name__ if hasattr(self.op, "__name__") else str(self.op)
        return f"{name}({', '.join(map(_brief, self.inputs))})"


@dataclass(frozen=True)
class Run:
    """A case with one dtype for each array, the one with index `turn`, and with one memory layout."""

    case: Case
    turn: int
    layout: str

    @property
    def dtype(self) -> str:
        """The dtype of the first array."""
        return self.case.arrays[0].dtype(self.turn)

    def __str__(self) -> str:
        dtypes = dict.fromkeys(x.dtype(self.turn) for x in self.case.arrays)
        words = [*dtypes, self.layout] if dtypes else []
        return " ".join([str(self.case), *words])


def load(table: str, select: str = "", once: bool = False) -> list[Run]:
    """Return the runs of a module's CASES whose names contain a text.

    With `once`, only return the runs in `more_runs`, and one other run per case, whose arrays are not in C order if
    possible.
    """
    cases: Sequence[Case] = importlib.import_module(table).CASES
    runs = [run for case in cases for run in case.runs()]
    if once:
        kept = {*map(str, first_runs(table)), *more_runs(table)}
        runs = [run for run in runs if str(run) in kept]
    return [run for run in runs if select in str(run)]


def first_runs(table: str) -> list[Run]:
    """Return one run for each case of a module; `once` always includes these runs."""
    return [_first_run(case) for case in importlib.import_module(table).CASES]


def _first_run(case: Case) -> Run:
    # The name of the case determines the run, so that new cases do not change the runs of other cases.
    number = zlib.crc32(str(case).encode())
    turns = [list(runs) for _, runs in itertools.groupby(case.runs(), key=lambda run: run.turn)]
    in_c_order, *others = turns[number % len(turns)]
    return others[number % len(others)] if others else in_c_order


def more_runs_file(table: str) -> Path:
    """Return the file with the names of additional runs for `once`; these runs launch kernels that others do not."""
    return Path(inspect.getfile(importlib.import_module(table))).with_suffix(".more_runs.txt")


def more_runs(table: str) -> list[str]:
    """Return the names of runs in the file `more_runs_file`, or the names of all runs if there is no such file."""
    file = more_runs_file(table)
    return file.read_text().splitlines() if file.exists() else list(map(str, load(table)))


def never_launched(table: str) -> dict[tuple[str, str], str]:
    """Return the dictionary NEVER of the module `table`, which maps kernels that ops never launch to reasons.

    A key is a pair of the name of the op's class and the name of the kernel.
    """
    return getattr(importlib.import_module(table), "NEVER", {})


def shared_kernels(table: str) -> tuple[str, ...]:
    """Return SHARED of the module `table`: prefixes of kernels that count as run if any op launches them."""
    return tuple(getattr(importlib.import_module(table), "SHARED", ()))


def _brief(x: Any) -> str:
    return f"array of {x.shape}" if isinstance(x, np.ndarray) else str(x)
