"""Runs cases under the memory checker one after the other, in a process that `memcheck.runner` starts and watches.

Each run waits for its kernels, so that all that Oclgrind writes during a run belongs to this run.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from theano.gof import Constant, Variable
from theano.gof.graph import io_toposort
from theano.tensor import constant

from memcheck.case import Given, Number, Run, load
from memcheck.launches import noted
from memcheck.layouts import laid_out
from memcheck.log import parse
from memcheck.records import Result, Writer
from optdb.opencl import OpenCLArrayType, contexts, get_context
from optdb.runtime.device_profiles import DeviceKind
from optdb.runtime.errors import DeviceError

if TYPE_CHECKING:
    from optdb.runtime.context import Context

NAME = "memory-checker"
#: Number of compute units for which work is divided; for a single unit, as Oclgrind has, work would not be divided.
UNITS = 2
#: The tile of small products that read four numbers at a time; the default tile exceeds Oclgrind's local memory.
QUAD_TILE = 16, 16, 32, 8


def compute(run: Run, context: Context) -> None:
    """Compute all nodes of a run's graph, one after the other."""
    case = run.case
    variables, known = [], {}
    for given in case.inputs:
        if not isinstance(given, Given):
            variables.append(constant(np.asarray(given.value, run.dtype)) if isinstance(given, Number) else given)
            continue
        broadcasts = [length == 1 for length in given.shape]
        variable = OpenCLArrayType(given.dtype(run.turn), broadcasts, NAME)()
        known[variable] = laid_out(context, given.value(run.turn), run.layout)
        variables.append(variable)
    results = case.op(*variables)
    results = list(results) if isinstance(results, list | tuple) else [results]
    for node in io_toposort(list(known), results):
        storage: list[list[Any]] = [[None] for _ in node.outputs]
        node.op.perform(node, [_value(x, known) for x in node.inputs], storage)
        known.update((out, cell[0]) for out, cell in zip(node.outputs, storage))


def _value(x: Variable, known: dict[Variable, Any]) -> Any:
    return x.data if isinstance(x, Constant) else known[x]


def check(run: Run, context: Context, log: Path) -> Result:
    """Make a run on the memory checker, which writes to `log`; return the result with the findings."""
    result = Result(str(run), str(run.case), context.profile.device_kind)
    before, start = log.stat().st_size, time.process_time()
    with noted() as notes:
        try:
            compute(run, context)
        except Exception:
            result.error = traceback.format_exc()
    context.queue.finish()
    with log.open() as stream:
        stream.seek(before)
        result.findings = parse(stream.read())
    result.declared, result.launched = notes.declared, notes.launched
    result.seconds = time.process_time() - start
    return result


def of_share(runs: Sequence[Run], share: int, shares: int) -> Iterator[tuple[int, Run]]:
    """Yield the runs of a share and their indices; all runs of a case, which use the same kernels, are in one share."""
    cases = {case: number for number, case in enumerate(dict.fromkeys(str(run.case) for run in runs))}
    return ((index, run) for index, run in enumerate(runs) if cases[str(run.case)] % shares == share)


@click.command()
@click.option("--table", required=True, help="The module with the cases.")
@click.option("--device-kind", required=True, type=click.Choice(["cpu", "gpu"]), help="Kind of kernels.")
@click.option("--select", default="", help="Text that the names of the runs contain.")
@click.option("--once", is_flag=True, help="Only some runs of each case.")
@click.option("--first", default=0, help="The index of the first run.")
@click.option(
    "--share", type=int, nargs=2, default=(0, 1), help="Share of the cases: its index, and the number of shares."
)
@click.option("--log", required=True, type=click.Path(path_type=Path), help="Log file of the memory checker.")
@click.option("--write-to", required=True, type=click.Path(path_type=Path), help="File for the results.")
def main(
    table: str,
    device_kind: DeviceKind,
    select: str,
    once: bool,
    first: int,
    share: tuple[int, int],
    log: Path,
    write_to: Path,
) -> None:
    """Run the cases of a table under the memory checker."""
    contexts.register(NAME, "Oclgrind")
    contexts.default = NAME
    try:
        context = get_context(NAME)
    except DeviceError as error:
        raise click.ClickException(f"{error}\nFor Oclgrind, pip install 'optdb[oclgrind]'") from None
    context.profile = context.profile.as_kind(device_kind, UNITS)
    context.options = replace(context.options, quad_tile=QUAD_TILE)
    with write_to.open("w") as stream:
        writer = Writer(stream)
        for index, run in of_share(load(table, select, once), *share):
            if index < first:
                continue
            writer.start(index, str(run), str(run.case))
            writer.result(check(run, context, log))
        writer.finish()


if __name__ == "__main__":
    main()
