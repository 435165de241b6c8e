"""Writes the results of a run as a page of the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from models import registry
from models.records import ENGINE, STOCK, Report

HEAD = """# Models of other libraries

This page compares optdb with stock Theano on unmodified models for Keras 2.3.1, Lasagne 0.1 and PyMC3 3.9.3: the
values, the number of nodes, and the time per step. The command `python -m models --page docs/models.md` generates this
page.

Each model is compiled by stock Theano, by the engine (`engine`), in mode `OPENCL` (`opencl`) and as a `SimulatorOCL`
(`simulator`). Each compiled function is called several times with changing data. Keras's learning phase is turned off
for some of the calls.

`make models` installs the libraries into a separate environment, build/models-venv, and compares all models.
`build/models-venv/bin/python -m models keras_vae gp` compares some of the models, and `--time` also measures their
speed relative to Theano's C code. `--json FILE --resume` continues a stopped run. [Libraries](libraries.md) describes
which removed features of Python and NumPy the libraries need.

The columns `engine`, `opencl` and `simulator` show the largest difference from stock Theano's values, relative to the
largest number in the array. The differences cover all outputs and, after the last call, all shared variables. A
difference is marked *chaotic* if a change of the initial values by a few units in the last place changes stock Theano's
own values by at least that difference.
"""


def write(reports: Sequence[Report], ways: Sequence[str], path: Path) -> None:
    """Write a page with the results of a run."""
    lines = [HEAD, f"{_run(reports)}\n", *_values(reports, ways), *_times(reports, ways), *_faults(reports)]
    path.write_text("\n".join(lines))


def _run(reports: Sequence[Report]) -> str:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("Theano", "numpy", "scipy"))
    return f"This run compared {len(reports)} of {len(registry.known())} models, with {versions}."


def _values(reports: Sequence[Report], ways: Sequence[str]) -> Iterator[str]:
    yield "## Values and graphs\n"
    yield f"| model | description | dtype | nodes, stock / engine | {' | '.join(ways)} | nodes on the device / host |"
    yield "|---|---|---|---|" + "---|" * (len(ways) + 1)
    for report in reports:
        stock, engine = report.results.get(STOCK), report.results.get(ENGINE)
        nodes = f"{stock.nodes} / {engine.nodes}" if stock is not None and engine is not None else "-"
        placed = next((result for result in report.results.values() if result.on_device), None)
        places = f"{placed.on_device} / {placed.on_host}" if placed is not None else "-"
        cells = " | ".join(_difference(report, way) for way in ways)
        summary = registry.entry(report.model).summary.rstrip(".")
        yield f"| {report.model} | {summary} | {report.floatX} | {nodes} | {cells} | {places} |"
    yield ""


def _difference(report: Report, way: str) -> str:
    result = report.results.get(way)
    if result is None or result.error:
        return "fails"
    told = "same" if not result.difference else f"{result.difference:.0e}"
    return f"{told}, chaotic" if report.is_chaotic(way) else told if report.agrees(way) else f"**{told}**"


def _times(reports: Sequence[Report], ways: Sequence[str]) -> Iterator[str]:
    timed = [(report, report.times) for report in reports if report.times is not None]
    if not timed:
        return
    yield "## Time of a step\n"
    devices = ", ".join(dict.fromkeys(times.device for _, times in timed if times.device))
    yield 'The column "C" shows milliseconds per step with Theano\'s C code. The next columns show the speed of'
    yield "`engine`, `opencl` and `simulator` relative to C, measured alternately in one process. The models are only"
    yield "large enough to compare values, so a kernel launch takes longer than its work. [How fast a device"
    yield "is](device-time.md) has measurements of larger models and of GPUs.\n"
    yield f"The device: {devices or 'not recorded'}.\n"
    yield f"| model | C, ms | {' | '.join(ways)} | launches | why the device is slower |"
    yield "|---|---|" + "---|" * (len(ways) + 2)
    for report, times in timed:
        ratios = " | ".join(f"{times.ratio(way):.2f}x" for way in ways)
        reasons = next((reasons for way in reversed(ways) if (reasons := report.reasons(way))), [""])
        seconds = f"{1e3 * times.seconds[STOCK]:.2f}"
        yield f"| {report.model} | {seconds} | {ratios} | {times.launches} | {reasons[0].replace('|', '/')} |"
    yield ""


def _faults(reports: Sequence[Report]) -> Iterator[str]:
    faults = [f"- {report.model}: {fault.splitlines()[0]}" for report in reports for fault in report.faults()]
    yield "## Faults\n"
    yield from faults or ["None: no values differ, and no graph has more nodes than with stock Theano."]
    yield ""
