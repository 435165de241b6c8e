"""Runs models sequentially or in parallel, each in a separate process with a limit on CPU seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from models import registry
from models.records import Report, Times
from profiles import isolated

CHECKOUT = Path(__file__).resolve().parent.parent

PATIENCE = 8
"""How many times its CPU seconds a process may take on the wall before it is given up: it is asleep, or stuck."""


@dataclass(frozen=True)
class Settings:
    """How models are run.

    Stock Theano runs in addition to `ways`. `timeout` is the maximum number of CPU seconds of a model, without
    compilers. If `floatX` is empty, each library's usual dtype is used. With `time`, steps are timed, and compared with
    the time of Theano's C code.
    """

    ways: tuple[str, ...]
    steps: int = 4
    timeout: int = 600
    floatX: str = ""  # noqa: N815  (Theano's name)
    time: bool = False


def run_all(
    names: Sequence[str], settings: Settings, jobs: int, compared: Mapping[str, Report] | None = None
) -> Iterator[Report]:
    """Yield a report for each named model; models that `compared` has a faultless report for are not run again."""
    compared = {name: report for name, report in (compared or {}).items() if not report.faults()}
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda name: _timed(compared.get(name) or run(name, settings), settings), names)


def run(name: str, settings: Settings) -> Report:
    """Compare the ways to compile a model; if the process ends early, the cause becomes the report's error."""
    entry = registry.entry(name)
    dtype = settings.floatX or entry.floatX
    try:
        answer = _call("models.worker:compare", settings, dtype, name, list(settings.ways), settings.steps)
    except isolated.Failed as failure:
        return Report(name, entry.library, dtype, error=str(failure))
    report = Report.from_json(answer)
    if dtype == "float32" and any(map(report.is_chaotic, report.results)):
        # Rounding may hide other faults, so compare in float64, which has smaller rounding errors.
        report.calm = run(name, replace(settings, floatX="float64"))
    return report


def _timed(report: Report, settings: Settings) -> Report:
    """Return a report; add the times of a step if they are requested and the model has no fault."""
    if settings.time and not report.faults():
        try:
            measured = _call("models.timing:measure", settings, report.floatX, report.model, list(settings.ways))
            report.times = Times(**measured)
        except isolated.Failed as failure:
            report.error = f"while steps were timed: {failure}"
    return report


def _call(function: str, settings: Settings, dtype: str, *args: object) -> dict:
    folder = CHECKOUT / "build" / "models" / "compiledir"
    return isolated.call(
        "models.worker:limited",
        settings.timeout,
        function,
        list(args),
        flags=f"floatX={dtype},base_compiledir={folder}",
        # With a fixed hash seed, the order of sets, and therefore of rewrites, is the same in every run.
        env={"PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore"},
        timeout=PATIENCE * settings.timeout,
    )
