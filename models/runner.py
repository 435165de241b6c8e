"""Runs models one after another or side by side, each in a process of its own with a limit of CPU seconds."""

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

    Parameters
    ----------
    ways
        Names of `models.ways.WAYS`, without stock, which is always run.
    steps
        How many calls are made in each way.
    timeout
        CPU seconds that a model may take, those of compilers not counted.
    floatX
        What is computed in; empty for what the users of each library compute in.
    time
        Whether steps are timed, beside Theano's C code.
    """

    ways: tuple[str, ...]
    steps: int = 4
    timeout: int = 600
    floatX: str = ""  # noqa: N815  (Theano's name)
    time: bool = False


def run_all(
    names: Sequence[str], settings: Settings, jobs: int, compared: Mapping[str, Report] | None = None
) -> Iterator[Report]:
    """Yield a report for each model, in the order of the names.

    Models that have been `compared` without a fault are not compared again: only their steps are timed.
    """
    compared = {name: report for name, report in (compared or {}).items() if not report.faults()}
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda name: _timed(compared.get(name) or run(name, settings), settings), names)


def run(name: str, settings: Settings) -> Report:
    """Compare the ways of a model; what ends its process becomes the report's error."""
    entry = registry.entry(name)
    dtype = settings.floatX or entry.floatX
    try:
        answer = _call("models.worker:compare", settings, dtype, name, list(settings.ways), settings.steps)
    except isolated.Failed as failure:
        return Report(name, entry.library, dtype, error=str(failure))
    report = Report.from_json(answer)
    if dtype == "float32" and any(map(report.is_chaotic, report.results)):
        # Rounding hides what else may be wrong; there is less of it in float64.
        report.calm = run(name, replace(settings, floatX="float64"))
    return report


def _timed(report: Report, settings: Settings) -> Report:
    """Return a report with the times of a step, if they are asked for and the model has no fault."""
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
        # The order of sets, and with it the order of rewrites, is the same in every run.
        env={"PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore"},
        timeout=PATIENCE * settings.timeout,
    )
