"""Mode 'OPENCL_AUTO': functions run on the device or with PyTensor's default linker, whichever is faster.

For new input shapes, the first calls alternate between the device and the default linker (the two *sides*). One of
these calls runs on both sides, and its two results must agree; each other call runs on one side only. Each call, even
if it runs on both sides, advances shared variables and random generators exactly once.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.io import In, Out
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant, Variable

from optdb.callers import caller_level
from optdb.device.functions.shared_values import Cell, fetched
from optdb.pytensor.host_groups import compile_errors
from optdb.pytensor.linker import OpenCLFunction, OpenCLLinker
from optdb.pytensor.sources import mode_of_linker, source_of
from optdb.runtime import tuning
from optdb.runtime.context import Context
from optdb.runtime.sigint import without_sigint
from optdb.user_cache import warn_unwritable

#: The two sides that a function can run on: PyTensor's default linker, and the device.
DEFAULT, DEVICE = "default", "device"

#: The version of stored choices; change it when the procedure for choosing changes.
_VERSION = "choice 3"
#: If a constant has more elements than this, its digest covers only its dtype and shape.
_MAX_CONSTANT_ELEMENTS = 1000
#: The number of untimed calls on the device, in which code is compiled and commands are recorded.
_WARMUP_CALLS = 3
#: The number of calls that are timed on the device, and with the default linker. The trial ends after `_FEW_CALLS` if
#: the device takes at least `_CLEAR_RATIO` times as long as the default linker.
_TIMED_CALLS, _FEW_CALLS = 15, 4
_CLEAR_RATIO = 2.0
#: The device is chosen if its time is less than this fraction of the default linker's time.
_WORTHWHILE = 0.95
#: The maximum number of trials. Later shapes use the default linker, because each trial compiles code for the device.
_MOST_CHOICES = 8
#: The largest accepted difference between values, relative to the largest number in the array.
_TOLERANCE, _TOLERANCE_OF_SINGLES = 1e-6, 1e-3

#: A function that runs a call with the inputs in cells, stores the next values in the cells, and returns the outputs.
CellFunction = Callable[[Sequence[Cell]], Any]


class DifferingValuesWarning(UserWarning):
    """Warns that the device and PyTensor's default linker compute different values."""


@dataclass(frozen=True)
class SideChoice:
    """The choice between the device and the default linker for calls with certain shapes, and the reason for it."""

    side: str  #: `DEFAULT` or `DEVICE`.
    reason: str
    #: The measured times of a call with the default linker and on the device, in seconds.
    default_s: float | None = None
    device_s: float | None = None

    def __str__(self) -> str:
        if self.default_s is None or self.device_s is None:
            return f"{self.side}, since {self.reason}"
        times = f"default {self.default_s * 1e6:.1f} us a call, device {self.device_s * 1e6:.1f} us"
        return f"{self.side}, {self.reason}: {times}"


class Trial:
    """Alternates calls with certain shapes between the device and the default linker until one of them is chosen.

    `run` takes `DEVICE` or `DEFAULT`, and returns the function that runs calls on this side. `overwritable` lists
    positions of inputs that the default linker may overwrite. `updates` maps an output's number to the position of the
    input that the output updates.
    """

    def __init__(
        self, run: Callable[[str], CellFunction], overwritable: Sequence[int], updates: Mapping[int, int]
    ) -> None:
        self._run = run
        self._overwritable = overwritable
        self._updates = updates
        self._calls = 0
        self._is_compared = False
        self._times_s: dict[str, list[float]] = {DEFAULT: [], DEVICE: []}
        self.choice: SideChoice | None = None

    def call(self, cells: Sequence[Cell]) -> Any:
        """Run a call; when enough calls have been timed, choose the device or the default linker."""
        self._calls += 1
        if self._calls == 1:
            return self._first(cells)
        if not self._is_compared:
            return self._compared(cells)
        side = DEVICE if self._calls % 2 else DEFAULT
        begin = time.perf_counter()
        results = self._on_device(cells) if side == DEVICE else self._run(side)(cells)
        if self._calls > 2 * _WARMUP_CALLS and self.choice is None:
            self._times_s[side].append(time.perf_counter() - begin)
            self._decide()
        return results

    def _first(self, cells: Sequence[Cell]) -> Any:
        """Run a call with the default linker; if the linker cannot compile the graph, run the call on the device."""
        kept = [(cells[n], copy.deepcopy(cells[n][0])) for n in self._overwritable]
        try:
            run = self._run(DEFAULT)
        except Exception as error:
            return self._without_default(cells, error)
        try:
            return run(cells)
        except compile_errors() as error:
            for cell, value in kept:
                cell[0] = value
            return self._without_default(cells, error)

    def _without_default(self, cells: Sequence[Cell], error: Exception) -> Any:
        """Choose the device, because the default linker cannot compile the graph."""
        try:
            results = self._run(DEVICE)(cells)
        except Exception:
            raise error from None
        self.choice = SideChoice(DEVICE, f"the default linker failed to compile it: {_summary(error)}")
        return results

    def _on_device(self, cells: Sequence[Cell]) -> Any:
        """Run a call on the device; if the device fails, which leaves the inputs unchanged, use the default linker."""
        try:
            return self._run(DEVICE)(cells)
        except Exception as error:
            return self._without_device(cells, error)

    def _without_device(self, cells: Sequence[Cell], error: Exception) -> Any:
        """Choose the default linker, because the device failed."""
        results = self._run(DEFAULT)(cells)
        self.choice = SideChoice(DEFAULT, f"the device failed: {_summary(error)}")
        return results

    def _compared(self, cells: Sequence[Cell]) -> Any:
        """Run a call on the device and with the default linker; compare the outputs; store the linker's next values."""
        updated = self._updates.values()
        apart = [[copy.deepcopy(cell[0])] if number in updated else cell for number, cell in enumerate(cells)]
        try:
            computed = list(self._run(DEVICE)(apart))
        except Exception as error:
            return self._without_device(cells, error)
        for number, position in self._updates.items():
            computed[number] = fetched(apart[position])
        expected = self._run(DEFAULT)(cells)
        self._is_compared = True
        if not agree(expected, computed):
            self.choice = SideChoice(DEFAULT, "the device computes different values")
            warnings.warn(
                "A function in mode OPENCL_AUTO computes different values on the device than with PyTensor's "
                "default linker. From now on, it runs with the default linker. Please report the model.",
                DifferingValuesWarning,
                stacklevel=caller_level(),
            )
        return expected

    def _decide(self) -> None:
        """After enough calls, choose the device if it has lower minimum and median times, else the default linker."""
        default, device = self._times_s[DEFAULT], self._times_s[DEVICE]
        count = min(len(default), len(device))
        if count < _FEW_CALLS or (count < _TIMED_CALLS and min(device) < _CLEAR_RATIO * min(default)):
            return
        is_faster = all(of(device) < _WORTHWHILE * of(default) for of in (min, median))
        reason = f"measured in {self._calls} calls"
        self.choice = SideChoice(DEVICE if is_faster else DEFAULT, reason, min(default), min(device))


def _summary(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def agree(expected: Sequence[Any] | None, computed: Sequence[Any]) -> bool:
    """Return whether the arrays in two sequences are equal up to rounding; values of other types are not compared."""
    return all(
        _arrays_agree(one, other)
        for one, other in zip(expected or (), computed)
        if isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    )


def _arrays_agree(expected: Any, computed: Any) -> bool:
    if expected.shape != computed.shape:
        return False
    if expected.dtype.kind not in "fc":
        return bool(np.array_equal(expected, computed))
    finite = np.isfinite(expected)
    if not np.array_equal(expected[~finite], computed[~finite], equal_nan=True):
        return False
    is_single = expected.dtype.itemsize <= (8 if expected.dtype.kind == "c" else 4)
    largest = np.abs(expected[finite]).max(initial=0.0)
    distance = np.abs(expected[finite] - computed[finite]).max(initial=0.0)
    return bool(distance <= (_TOLERANCE_OF_SINGLES if is_single else _TOLERANCE) * largest)


class ChoosingFunction:
    """Computes a graph on the device or with the default linker, whichever is faster for the shapes of the inputs."""

    def __init__(self, fgraph: Any, context: Callable[[], Context]) -> None:
        self.fgraph = fgraph
        self._context = context
        # The inputs whose shapes may differ between calls.
        self._varying = [n for n, var in enumerate(fgraph.inputs) if None in getattr(var.type, "shape", ())]
        protected = set(fgraph._supervisor.protected)
        self._overwritable = [n for n, var in enumerate(fgraph.inputs) if var not in protected]
        #: Maps an output's number to the position of the input that the output updates.
        self._updates: dict[int, int] = dict(getattr(fgraph, "update_mapping", None) or {})
        self._lock = threading.RLock()
        self._default: CellFunction | None = None
        #: The function on the device; None before it is compiled, and when the device can no longer be chosen.
        self.device: OpenCLFunction | None = None
        self._trials: dict[Any, Trial] = {}
        #: The choices so far, by the shapes of the inputs whose shapes may differ.
        self.choices: dict[Any, SideChoice] = {}
        #: The shapes of the latest call, and the function that runs calls with these shapes.
        self._current: tuple[Sequence[tuple[int, Any]], CellFunction] = ((), self._choose)

    @functools.cached_property
    def _digest(self) -> str:
        return graph_digest(self.fgraph)

    def run(self, cells: Sequence[Cell]) -> Any:
        """Run the computation; see `Computation.run`."""
        shapes, run = self._current
        for number, shape in shapes:
            if cells[number][0].shape != shape:
                return self._choose(cells)
        return run(cells)

    def _choose(self, cells: Sequence[Cell]) -> Any:
        """Run a call that is part of a trial, or whose shapes differ from those of the previous call."""
        shapes = tuple([cells[number][0].shape for number in self._varying])
        with self._lock:
            choice = self.choices.get(shapes) or self._known(shapes)
            if choice is not None:
                self._keep(shapes, choice)
                return self._run(choice.side)(cells)
            trial = self._trials.setdefault(shapes, Trial(self._run, self._overwritable, self._updates))
            results = trial.call(cells)
            if trial.choice is not None:
                self._keep(shapes, trial.choice)
                self._save(shapes, trial.choice)
            return results

    def _known(self, shapes: Any) -> SideChoice | None:
        """Return the choice for calls with given shapes; None if a trial is needed."""
        if shapes in self._trials:
            return None
        if len(self.choices) >= _MOST_CHOICES:
            return SideChoice(DEFAULT, f"the limit of {_MOST_CHOICES} measured shapes is reached")
        try:
            self._context()
        except Exception as error:  # from PyOpenCL, a driver or a wrong device name
            return SideChoice(DEFAULT, f"no device is available: {_summary(error)}")
        found = tuning.load(self._key(shapes))
        return None if found is None else _choice_of(found)

    def _keep(self, shapes: Any, choice: SideChoice) -> None:
        if len(self.choices) < _MOST_CHOICES:
            self.choices[shapes] = choice
        self._trials.pop(shapes, None)
        self._current = (tuple(zip(self._varying, shapes)), self._run(choice.side))
        if not self._trials and all(other.side == DEFAULT for other in self.choices.values()):
            self.device = None

    def _save(self, shapes: Any, choice: SideChoice) -> None:
        """Store a measured choice for later processes."""
        if choice.default_s is None:
            return
        key = self._key(shapes)
        try:
            tuning.save(key, asdict(choice))
        except OSError as error:
            warn_unwritable("choices of mode OPENCL_AUTO", tuning.path_of(key).parent, error, "measures again")

    def _key(self, shapes: Any) -> dict[str, Any]:
        """Return the key of a stored choice, which contains everything that the choice depends on."""
        return {
            **tuning.key_of(self._context().device, "linker of PyTensor", "", _VERSION),
            "graph": self._digest,
            "shapes": [list(shape) for shape in shapes],
            "processors": os.cpu_count(),
            "default": Mode().linker.__class__.__name__,
            **{name: _version_of(name) for name in ("optdb", "pytensor", "numba", "numpy")},
        }

    def _run(self, side: str) -> CellFunction:
        """Return the function that runs calls on the device or with the default linker; compile it at first use."""
        if side == DEFAULT:
            if self._default is None:
                compiled = self._compiled()
                self._default = functools.partial(run_by_values, compiled, list(self._updates.items()))
            return self._default
        if self.device is None:
            self.device = OpenCLFunction(self.fgraph, self._context(), warns=False)
        return self.device.run

    def _compiled(self) -> Callable[..., Any]:
        """Compile the graph with PyTensor's default linker."""
        source = source_of(self.fgraph)
        inputs = [In(var, mutable=number in self._overwritable) for number, var in enumerate(source.inputs)]
        function = pytensor.function(
            inputs,
            [Out(var) for var in source.outputs],
            mode=mode_of_linker(None, source),
            accept_inplace=True,
            trust_input=True,
            on_unused_input="ignore",
        )
        compiled: Callable[..., Any] = getattr(function.vm, "jit_fn", function)
        return compiled


def run_by_values(compiled: Callable[..., Any], updates: Sequence[tuple[int, int]], cells: Sequence[Cell]) -> Any:
    """Call a function with the values in `cells`; store either all next values in the cells or none of them."""
    outputs = compiled(*[fetched(cell) for cell in cells])
    return without_sigint(_stored, outputs, updates, cells) if updates else outputs


def _stored(outputs: Any, updates: Sequence[tuple[int, int]], cells: Sequence[Cell]) -> Any:
    for number, position in updates:
        cells[position][0] = outputs[number]
    return outputs


def _choice_of(found: Mapping[str, Any]) -> SideChoice | None:
    """Parse a stored choice; return None if the file holds something else."""
    try:
        times = [float(found[name]) for name in ("default_s", "device_s")]
        return SideChoice({DEFAULT: DEFAULT, DEVICE: DEVICE}[found["side"]], "measured earlier", *times)
    except (KeyError, TypeError, ValueError):
        return None


def _version_of(package: str) -> str:
    with contextlib.suppress(PackageNotFoundError):
        return version(package)
    return ""


class ChoosingLinker(OpenCLLinker):
    """A linker whose functions run on a device or with PyTensor's default linker, whichever is faster."""

    def fgraph_convert(self, fgraph: Any, **kwargs: Any) -> ChoosingFunction:
        """Return the object that computes a graph's outputs from its inputs."""
        return ChoosingFunction(fgraph, lambda: self.context)


def graph_digest(fgraph: Any) -> str:
    """Return a digest of a graph's ops, types and small constants, without names of variables."""
    return hashlib.sha256("\n".join(_graph_lines(fgraph)).encode()).hexdigest()[:32]


def _graph_lines(fgraph: Any) -> Iterator[str]:
    names: dict[Variable, str] = {}
    for number, var in enumerate(fgraph.inputs):
        names[var] = f"input {number}"
        yield f"{names[var]}: {var.type}"
    for number, node in enumerate(fgraph.toposort()):
        names.update((var, f"node {number} output {output}") for output, var in enumerate(node.outputs))
        inputs = ", ".join(names.get(var) or _constant_text(var) for var in node.inputs)
        types = ", ".join(str(var.type) for var in node.outputs)
        yield f"node {number}: {_op_text(node.op)}({inputs}) -> {types}"
    yield f"outputs: {', '.join(names.get(var) or _constant_text(var) for var in fgraph.outputs)}"


def _op_text(op: Any) -> str:
    # The names of some ops contain addresses, which differ between processes.
    name = re.sub(r"0x[0-9a-fA-F]+", "", f"{type(op).__module__}.{type(op).__qualname__} {op}")
    inner = getattr(op, "fgraph", None)
    return name if inner is None else f"{name} {graph_digest(inner)}"


def _constant_text(var: Variable) -> str:
    if not isinstance(var, Constant):
        return f"{var.type}"
    if not isinstance(var.data, np.ndarray):
        return re.sub(r"0x[0-9a-fA-F]+", "", repr(var.data))
    data = np.ascontiguousarray(var.data)
    content = hashlib.sha256(data.tobytes()).hexdigest() if data.size <= _MAX_CONSTANT_ELEMENTS else ""
    return f"{data.dtype}{data.shape} {content}"
