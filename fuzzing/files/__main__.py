"""The command line: ``python -m fuzzing.files``."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from fuzzing.files.corpus import write_exports
from fuzzing.files.runner import Report, Settings, run


@click.command()
@click.option("--mutants", default=100_000, show_default=True, help="Number of mutants.")
@click.option("--seed", default=0, show_default=True, help="Seed of the mutants.")
@click.option("--workers", default=2, show_default=True, help="Number of processes that load mutants.")
@click.option("--device", default="auto", show_default=True, help="Device that runs mutants, as in optdb.load.")
@click.option(
    "--kernels-share",
    default=0.02,
    show_default=True,
    help="Share of the mutants with changed kernels that are called.",
)
@click.option("--timeout", default=120.0, show_default=True, help="Timeout of a mutant, in seconds.")
@click.option("--folder", default="build/fuzz-files", show_default=True, type=click.Path(path_type=Path))
def main(
    mutants: int, seed: int, workers: int, device: str, kernels_share: float, timeout: float, folder: Path
) -> None:
    """Alter exported plan files at random, load them, and call their functions.

    The exit status is 1 if an altered file crashed or hung the process that loaded it, took too much memory, opened
    another file, or was rejected with an error that has no message. These files are stored in `folder`.
    """
    console = Console()
    write_exports(folder / "exports")
    settings = Settings(mutants, folder, seed, workers, device, kernels_share, timeout)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("mutants", total=mutants)
        report = run(settings, lambda: progress.advance(task))
    show(console, report)
    raise SystemExit(1 if report.wrong else 0)


def show(console: Console, report: Report) -> None:
    """Print a table of the outcomes of mutants."""
    kinds = sorted({kind for kind, _ in report.outcomes})
    table = Table("", *kinds, "all")
    for outcome in sorted({outcome for _, outcome in report.outcomes}):
        counts = [report.outcomes[kind, outcome] for kind in kinds]
        table.add_row(outcome, *map(str, counts), str(sum(counts)))
    totals = [sum(count for (other, _), count in report.outcomes.items() if other == kind) for kind in kinds]
    table.add_row("all", *map(str, totals), str(sum(totals)))
    console.print(table)
    console.print(f"{report.seconds:.0f} s of CPU time; the largest worker had {report.peak_bytes / 2**20:.0f} MiB")
    for number, what in sorted(report.by_kernels.items()):
        console.print(f"by its own kernels: mutant {number} {what}", highlight=False)
    for number, what in sorted(report.wrong.items()):
        console.print(f"WRONG: mutant {number}: {what}", highlight=False, markup=False)


if __name__ == "__main__":
    main()
