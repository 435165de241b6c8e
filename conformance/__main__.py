"""The command line: ``python -m conformance [SUITE...]``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import click
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

from conformance.baseline import Baseline, settings_of
from conformance.compare import Comparison, Verdict
from conformance.expected import EXPECTED, EXPECTED_BETWEEN_VERSIONS
from conformance.judge import Judge
from conformance.report import show
from conformance.runner import CHECKOUT, Settings
from conformance.suites import PYTENSOR_SUITES, SUITES, Suite, choose, suites_root
from conformance.ways import WAYS

# Use no C compiler, because compiling would take hours and the tests are about graphs. Do not link with a BLAS.
# PyTensor's suites set the other flags themselves, but too late if PyTensor has already been imported to enable the
# way.
FLAGS = {
    "theano": "cxx=,blas.ldflags=",
    "pytensor": "cxx=,linker=py,on_opt_error=raise,on_shape_error=raise,cmodule__warn_no_version=True",
}
WORK = CHECKOUT / "build" / "conformance"
PYTENSOR_ROOT = CHECKOUT / "build" / "pytensor-suites" / "suites"


@click.command()
@click.argument("suite", nargs=-1)
@click.option(
    "--host", default="theano", show_default=True, type=click.Choice(list(FLAGS)), help="Project whose test suites run."
)
@click.option("--way", type=click.Choice(sorted(WAYS)), help="Features to enable; by default topo, or pytensor.")
@click.option(
    "--root",
    default=PYTENSOR_ROOT,
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="With --host pytensor: the folder of its repository, at the installed version.",
)
@click.option("--jobs", default=2, show_default=True, help="Number of test files that run at a time.")
@click.option("--fresh", is_flag=True, help="Run stock again even if its results are on disk.")
@click.option("-k", "select", default="", metavar="EXPR", help="Run only tests that match, like pytest's -k.")
@click.option(
    "--confirm/--no-confirm", default=True, show_default=True, help="Run each suspect again, alone or with its file."
)
@click.option(
    "--lean",
    is_flag=True,
    help="Run stock only on tests that neither pass nor skip, and assume that it passes the others. For slow stock "
    "runs, as with a C compiler.",
)
@click.option("--timeout", default=300, show_default=True, help="Timeout of a test, in CPU seconds.")
@click.option(
    "--flags", default="", metavar="FLAGS", help="Additional host flags for both sides, such as floatX=float32."
)
@click.option(
    "--reference",
    metavar="PYTHON",
    help="Compare with stock under another interpreter, such as one with the oldest supported NumPy.",
)
@click.option("--keep-logs", is_flag=True, help="Keep pytest's output of each file.")
@click.option("--list", "listing", is_flag=True, help="List suites and ways, and exit.")
def main(
    suite: tuple[str, ...],
    host: str,
    way: str | None,
    root: Path,
    jobs: int,
    fresh: bool,
    select: str,
    confirm: bool,
    lean: bool,
    timeout: int,
    flags: str,
    reference: str | None,
    keep_logs: bool,
    listing: bool,
) -> None:
    """Run the host's own test suites with the engine, and compare the results, test by test, with those of stock.

    SUITE is the name of a suite or a part of a file's path. By default, all suites are run. The exit status is 1 if a
    test that passes with stock Theano fails with the engine and is not listed in conformance/expected.py.
    """
    console = Console()
    way = way or ("topo" if host == "theano" else host)
    suites = SUITES if host == "theano" else PYTENSOR_SUITES
    root = suites_root() if host == "theano" else root
    if not (root / "tests").is_dir() and host == "pytensor":
        raise click.UsageError(
            f"PyTensor's test suites are not in {root}. The cure: git clone --depth 1 --branch rel-VERSION "
            f"https://github.com/pymc-devs/pytensor {root}"
        )
    if listing:
        _list(console, suites, root)
        return
    files = choose(suite, suites, root)
    if not files:
        raise click.UsageError(f"no suite or file is named {' or '.join(suite)}; see --list")
    settings = Settings(
        root=root,
        work=WORK / "runs" / str(os.getpid()),
        flags=",".join(filter(None, [FLAGS[host], flags])),
        timeout=timeout,
        select=select,
        host=host,
    )
    try:
        stock = settings_of(settings, reference) if reference else settings
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    expected = {**EXPECTED, **EXPECTED_BETWEEN_VERSIONS} if reference else EXPECTED
    judge = Judge(settings, Baseline(stock, WORK / "baseline", fresh), way, expected, confirm, lean)
    try:
        comparisons = _run(console, judge, files, jobs)
    finally:
        if not keep_logs:
            shutil.rmtree(settings.work, ignore_errors=True)
    by_suite: dict[str, list[Comparison]] = {}
    for path, name in files.items():
        by_suite.setdefault(name, []).append(comparisons[path])
    show(console, by_suite, way)
    if lean:
        console.print("stock: not run on tests that pass with the engine, which it is assumed to pass")
    if keep_logs:
        console.print(f"logs: {settings.work}")
    failed = any(comparison.of(Verdict.REGRESSION) for comparison in comparisons.values())
    raise SystemExit(1 if failed else 0)


def _run(console: Console, judge: Judge, files: dict[str, str], jobs: int) -> dict[str, Comparison]:
    """Judge suite files with a progress bar, and print a line for each finished file."""
    comparisons = {}
    columns = (SpinnerColumn(), "{task.description}", MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("suite files", total=len(files))
        for comparison in judge.all(files, jobs):
            comparisons[comparison.path] = comparison
            regressions = comparison.of(Verdict.REGRESSION)
            style = "red" if regressions else "dim"
            line = f"{comparison.path}: {len(comparison.engine)} run, {len(regressions)} regressions"
            progress.console.print(line, style=style, highlight=False)
            # Print the line at once, because a long run may be stopped before the report is printed.
            for regression in regressions:
                progress.console.print(f"    {regression.result.id}", style=style, highlight=False, soft_wrap=True)
            progress.advance(bar)
    return comparisons


def _list(console: Console, suites: Iterable[Suite], root: Path) -> None:
    for suite in suites:
        console.print(f"[bold]{suite.name}[/]: {suite.summary}", highlight=False)
        for path in suite.files(root):
            console.print(f"    {path}", highlight=False)
    for way in WAYS.values():
        console.print(f"[bold]--way {way.name}[/]: {way.summary}", highlight=False)


if __name__ == "__main__":
    main()
