"""The command line: ``python -m models [NAMES]``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from models import page, registry
from models.records import Report
from models.report import read_json, show, write_json
from models.runner import Settings, run_all
from models.ways import STOCK, WAYS
from profiles import terminal

OTHERS = tuple(way for way in WAYS if way != STOCK)


class Select(click.ParamType):
    """A part of the names of models: ``keras``, ``keras_vae``, ``gp``."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Reject a text that no model's name contains, and list the names."""
        chosen = [name for name in registry.known() if value in name]
        # A model's complete name selects only this model, even if other names contain it.
        chosen = [value] if value in chosen else chosen
        if not chosen:
            self.fail(f"no model's name contains {value!r}; the models are: {', '.join(registry.known())}", param, ctx)
        return chosen


@click.command()
@click.argument("names", nargs=-1, type=Select())
@click.option("--way", "ways", multiple=True, type=click.Choice(OTHERS), help="Compare only this way; can be repeated.")
@click.option("--steps", default=4, show_default=True, type=click.IntRange(min=1), help="Number of calls to compare.")
@click.option(
    "--jobs", default=1, show_default=True, type=click.IntRange(min=1), help="Number of models that run at a time."
)
@click.option("--timeout", default=600, show_default=True, help="Timeout of a model, in CPU seconds.")
@click.option(
    "--floatX",
    "float_x",
    type=click.Choice(["float32", "float64"]),
    help="Use this floatX instead of each library's default.",
)
@click.option(
    "--time", "timed", is_flag=True, help="Time a step of each way, compared with Theano's C code. Compiles C."
)
@terminal.json_option
@click.option(
    "--resume", is_flag=True, help="Keep the results in that file, and run only models that are missing or have faults."
)
@click.option(
    "--page", "page_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the results as a page of docs/."
)
@click.option("--list", "listing", is_flag=True, help="List the models, and exit.")
def main(
    names: tuple[list[str], ...],
    ways: tuple[str, ...],
    steps: int,
    jobs: int,
    timeout: int,
    float_x: str | None,
    timed: bool,
    json_file: Path | None,
    resume: bool,
    page_file: Path | None,
    listing: bool,
) -> None:
    """Run models of Keras, Lasagne and PyMC3 in several ways, and compare them with stock Theano.

    NAMES are names of models or parts of names. By default, all models are run. The exit status is 1 if values differ
    from those of stock Theano, if a way fails, or if the engine's graph is worse than that of stock Theano.
    """
    console = terminal.console()
    chosen = list(dict.fromkeys(name for group in names for name in group)) or registry.known()
    if listing:
        for name in chosen:
            console.print(f"[bold]{name}[/]: {registry.entry(name).summary}", highlight=False, soft_wrap=True)
        return
    if resume and not json_file:
        raise click.UsageError("--resume needs --json FILE")
    missing = {registry.entry(name).library for name in chosen if not registry.entry(name).available}
    if missing:
        raise click.ClickException(
            f"{', '.join(sorted(missing))} cannot be imported: run `make models`, which makes build/models-venv, or "
            "that environment's python"
        )
    ways = ways or OTHERS
    settings = Settings(ways, steps, timeout, float_x or "", timed)
    kept = read_json(json_file) if resume and json_file is not None and json_file.exists() else []
    reports = {report.model: report for report in kept if report.results.keys() >= {*ways}}
    chosen = [name for name in chosen if not _is_done(reports.get(name), timed)]

    def save() -> None:
        if json_file:
            write_json(_in_order(reports), json_file)
        if page_file:
            page.write(_in_order(reports), ways, page_file)

    for report in _with_progress(run_all(chosen, settings, jobs, reports), len(chosen)):
        reports[report.model] = report
        save()  # written after each model, because a long run may be stopped
    if not chosen:
        save()  # no model was left to run, but a new page may be requested
    show(console, _in_order(reports), ways)
    terminal.print_paths(numbers=json_file, page=page_file)
    raise SystemExit(1 if any(report.faults() for report in reports.values()) else 0)


def _is_done(report: Report | None, timed: bool) -> bool:
    """Return whether a report contains all results that were requested."""
    return report is not None and not report.faults() and (not timed or report.times is not None)


def _in_order(reports: dict[str, Report]) -> list[Report]:
    return [reports[name] for name in registry.known() if name in reports]


def _with_progress(reports: Iterable[Report], total: int) -> Iterator[Report]:
    """Yield reports; meanwhile, show a progress bar, and print a line for each report."""
    with terminal.progress() as progress:
        task = progress.add_task("models", total=total)
        for report in reports:
            faults = report.faults()
            line = f"{report.model}: {faults[0].splitlines()[0] if faults else 'as stock'}"
            progress.console.print(line, style="red" if faults else "dim", highlight=False, markup=False)
            progress.advance(task)
            yield report


if __name__ == "__main__":
    main()
