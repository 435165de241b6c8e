"""The command line: ``python -m memcheck``."""

from __future__ import annotations

import click
from rich.console import Console

from memcheck.case import first_runs, load, more_runs_file, never_launched, shared_kernels
from memcheck.coverage import gaps, needed_runs, op_classes, short_name
from memcheck.report import show
from memcheck.runner import CannotRun, Settings, run_all
from optdb.runtime.device_profiles import DEVICE_KINDS


@click.command()
@click.option("-k", "select", default="", metavar="TEXT", help="Only runs whose names contain this text; see --list.")
@click.option("--device-kind", multiple=True, type=click.Choice(DEVICE_KINDS), help="Kind of kernels; both by default.")
@click.option(
    "--once",
    is_flag=True,
    help="Run each case with one dtype and in one layout, and with others only where these launch other kernels; "
    "kernels for GPUs are optimized.",
)
@click.option("--choose", is_flag=True, help="Run all cases, then list the runs that --once needs.")
@click.option("--table", default="memcheck.cases", show_default=True, help="The module with the cases.")
@click.option("--ops", default="optdb.opencl", show_default=True, help="The package whose ops must all have cases.")
@click.option("--timeout", default=60.0, show_default=True, help="Timeout of a run, in seconds.")
@click.option("--list", "listing", is_flag=True, help="List the runs, and exit.")
def main(
    select: str,
    device_kind: tuple[str, ...],
    once: bool,
    choose: bool,
    table: str,
    ops: str,
    timeout: float,
    listing: bool,
) -> None:
    """Run every kernel under a memory checker (Oclgrind).

    The exit status is 1 if a kernel accesses memory outside its arrays, has a data race or a divergent barrier, if an
    op raises an error, or if some kernel is not run by any case. With -k, kernels that the selected runs do not launch
    are listed, but are not failures.
    """
    if choose and (select or device_kind or once):
        raise click.UsageError("--choose runs all cases for all kinds: omit -k, --device-kind and --once")
    console = Console()
    if listing:
        for run in load(table, select, once):
            console.print(str(run), highlight=False, markup=False, soft_wrap=True)
        return
    if not load(table, select, once):
        raise click.UsageError(f"no run has {select!r} in its name; see --list")
    device_kinds = device_kind or DEVICE_KINDS
    try:
        results = run_all(Settings(table, select, once, timeout), device_kinds)
    except CannotRun as error:
        raise click.ClickException(str(error)) from None
    classes, never = op_classes(ops), never_launched(table)
    if select:
        launched = {owner for result in results for owner, _ in result.launched}
        classes = [owner for owner in classes if owner in launched]
        never = {named: why for named, why in never.items() if named[0] in map(short_name, classes)}
    missing = gaps(classes, results, device_kinds, never, shared_kernels(table))
    show(console, classes, results, missing, partial=bool(select))
    if choose:
        more_runs_file(table).write_text("".join(f"{run}\n" for run in needed_runs(results, first_runs(table))))
    failed = any(not result.clean for result in results) or (missing and not select)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
