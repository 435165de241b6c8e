"""Compares the time until a function's first result with empty caches, in stock Theano, optdb, and optdb with tiers.

Times are wall seconds from the call of ``theano.function`` in a new process. With tiers, the process also times calls
before and after the C code is ready. For these calls, the time is the CPU time of the calling thread, because compilers
run at the same time.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from profiles import isolated, models, starts
from profiles.report import OPTDB, STOCK, geometric_mean

__all__ = ["MODELS", "TIERED", "TRAINED_SIZES", "First", "available", "measure", "render", "start"]

TIERED = "tiered"

FLAGS = {
    STOCK: "optdb.topo=False,optdb.clinker=False,optdb.tiered=False",
    OPTDB: "optdb.topo=True,optdb.tiered=False",
    TIERED: "optdb.topo=True,optdb.tiered=True",
}

#: The models that are compared by default; some of them need other libraries.
MODELS = ("mlp", "convnet", "vae", "gru30", "lstm", "mixture", "resnet50", "keras_lstm", "pymc3_radon")

#: Sizes as used in practice, for some models.
TRAINED_SIZES: dict[str, dict[str, int]] = {
    "mlp": {"width": 512, "batch": 128},
    "lstm": {"width": 128, "steps": 20, "batch": 32},
    "gru30": {"width": 128, "batch": 32},
    "convnet": {"batch": 32, "size": 32},
}

#: Environment variables that limit BLAS to one thread.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

#: Number of timed calls that run C code; their median is reported.
CALLS_IN_C = 15


@dataclass(frozen=True)
class First:
    """The times of a model with one of `FLAGS`, in seconds.

    `function`, `result` and `in_place` are the times until ``theano.function`` returned, until the first call returned,
    and until all C code was in place. `tenth` is the median CPU time of the eighth to the twelfth call. `in_c` is the
    median CPU time of later calls, which run C code.
    """

    model: str
    side: str
    function: float
    result: float
    tenth: float
    in_place: float
    in_c: float


def available(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of the models that can be built here, and the names of the others."""
    known = {*models.known(), *models.of_libraries()}
    return [name for name in names if name in known], [name for name in names if name not in known]


def start(name: str, is_tiered: bool, sizes: Mapping[str, int]) -> list[float]:
    """Compile a model's function in this new process and call it; return the times of a `First`."""
    import theano

    import optdb

    model = models.build(name, **sizes)
    begin = time.perf_counter()
    function = theano.function(model.inputs, model.outputs, updates=model.updates)
    compiled = in_place = time.perf_counter() - begin
    function(*model.data)
    result = time.perf_counter() - begin
    tenth = statistics.median([_seconds_of_call(function, model.data) for _ in range(11)][-5:])
    if is_tiered:
        optdb.wait(function)
        in_place = time.perf_counter() - begin
        function(*model.data)
    in_c = statistics.median(_seconds_of_call(function, model.data) for _ in range(CALLS_IN_C))
    return [compiled, result, tenth, in_place, in_c]


def _seconds_of_call(function: Callable[..., object], data: Sequence[object]) -> float:
    begin = time.thread_time()
    function(*data)
    return time.thread_time() - begin


def measure(
    name: str,
    timeout: float | None = None,
    tell: Callable[[str], None] = lambda step: None,
    sizes: Mapping[str, int] | None = None,
    sides: Sequence[str] = tuple(FLAGS),
) -> list[First]:
    """Measure a model with empty caches for each of `sides` (keys of `FLAGS`); call `tell` after each one."""
    measured = []
    for side in sides:
        with tempfile.TemporaryDirectory(prefix="optdb-first-") as made:
            flags = f"floatX={models.dtype_of(name)},{FLAGS[side]},base_compiledir={Path(made, 'theano')}"
            env = {**starts.caching_below(Path(made)), **ONE_THREAD}
            try:
                numbers = isolated.call(
                    *("profiles.first:start", name, side == TIERED, dict(sizes or {})),
                    flags=flags,
                    env=env,
                    timeout=timeout,
                )
            except isolated.Failed as failure:
                raise isolated.Failed(f"{name}, {side}: {failure}") from None
        measured.append(First(name, side, *numbers))
        tell(side)
    return measured


def render(measured: Sequence[First]) -> Table:
    """Return a table of models, with a column for each of `FLAGS` that was measured for all models."""
    rows = _by_model(measured)
    sides = [side for side in FLAGS if all(side in row for row in rows)]
    sooner = [row[STOCK].result / row[TIERED].result for row in rows] if STOCK in sides else []
    change = [row[TIERED].in_place / row[OPTDB].result for row in rows]
    slower = [row[TIERED].tenth / row[TIERED].in_c for row in rows]
    table = Table(
        title="From the call of theano.function to the first result, empty caches",
        caption="wall-clock seconds; sooner: stock's time to the first result, divided by the time with tiers; C in "
        "place: when the function runs in C, and the ratio to the first result without tiers; tenth call: "
        "CPU time with tiers, and in C",
        show_footer=True,
    )
    table.add_column("model", footer="geometric mean")
    for side in sides:
        table.add_column(side, justify="right")
    if sooner:
        table.add_column("sooner", justify="right", footer=f"{geometric_mean(sooner):.1f}x")
    table.add_column("C in place", justify="right")
    table.add_column("ratio", justify="right", footer=f"{geometric_mean(change):.2f}x")
    table.add_column("tenth call, ms", justify="right")
    table.add_column("ratio", justify="right", footer=f"{geometric_mean(slower):.1f}x")
    for index, row in enumerate(rows):
        tiered = row[TIERED]
        table.add_row(
            tiered.model,
            *(f"{row[side].result:.2f}" for side in sides),
            *(f"{gain:.1f}x" for gain in sooner[index : index + 1]),
            f"{tiered.in_place:.1f}",
            f"{change[index]:.2f}x",
            f"{tiered.tenth * 1e3:.2f} / {tiered.in_c * 1e3:.2f}",
            f"{slower[index]:.1f}x",
        )
    return table


def _by_model(measured: Sequence[First]) -> list[dict[str, First]]:
    """Return, for each model that was measured with and without tiers, its times by the keys of `FLAGS`."""
    found: dict[str, dict[str, First]] = {}
    for first in measured:
        found.setdefault(first.model, {})[first.side] = first
    return [sides for sides in found.values() if {OPTDB, TIERED} <= sides.keys()]
