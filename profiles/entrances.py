"""Compares the ways to enable optdb: ``python -m profiles.entrances [MODEL]``.

For each way, a separate process compiles the same function, with empty caches and again with full caches. All processes
run the same engine and build the same C code. The number of compilers is always the same, and times differ only by
noise.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from profiles import models, terminal
from profiles.cli import MODEL_NAME
from profiles.starts import CACHES, caching_below, compilers_started
from profiles.stopwatch import cpu_seconds

#: A program that compiles and calls one function. The line that enables optdb (`enter`) may set `mode` and `scope`.
SCRIPT = """\
import contextlib
{imports}
import theano
from profiles import models
mode, scope = None, contextlib.nullcontext()
{enter}
model = models.build({model!r})
with scope:
    function = theano.function(model.inputs, model.outputs, updates=model.updates, mode=mode)
function(*model.data)
"""


@dataclass(frozen=True)
class Entrance:
    """How optdb is enabled: by a line of the program, by THEANO_FLAGS, or by Python's arguments before the program."""

    name: str
    enter: str = ""
    flags: str = ""
    launcher: tuple[str, ...] = ()
    imports_optdb: bool = True


ENTRANCES = (
    Entrance("with optdb.enable()", enter="scope = optdb.enable()"),
    Entrance("optdb.enable()", enter="optdb.enable()"),
    Entrance("mode=optdb.mode()", enter="mode = optdb.mode()"),
    Entrance('mode="TOPO"', enter='mode = "TOPO"'),
    Entrance("flag mode=TOPO", flags="mode=TOPO"),
    Entrance("flag optdb.topo=True", flags="optdb.topo=True"),
    Entrance("python -m optdb run", launcher=("-m", "optdb", "run"), imports_optdb=False),
)


@dataclass(frozen=True)
class Cost:
    """The cost of a process: CPU seconds (including compilers), wall seconds, and how many C compilers it started."""

    cpu: float
    wall: float
    compilers: int


def measure(entrance: Entrance, model: str, flags: str = "floatX=float32") -> dict[str, Cost]:
    """Run the program, with optdb enabled as in `entrance`, for each state of the caches; return the costs."""
    with tempfile.TemporaryDirectory(prefix="optdb-entrance-") as made:
        folder = Path(made)
        imports = "import optdb" if entrance.imports_optdb else ""
        program = folder / "program.py"
        program.write_text(SCRIPT.format(imports=imports, enter=entrance.enter, model=model))
        own_flags = ",".join(filter(None, [flags, entrance.flags, f"base_compiledir={folder / 'theano'}"]))
        env = {**os.environ, **caching_below(folder), "THEANO_FLAGS": own_flags}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path.cwd()), env.get("PYTHONPATH")]))
        command = [sys.executable, *entrance.launcher, str(program)]
        return {cache: _run(command, env, folder) for cache in CACHES}


def _run(command: Sequence[str], env: dict[str, str], folder: Path) -> Cost:
    before, began, compilers = cpu_seconds(), time.perf_counter(), compilers_started(folder)
    subprocess.run(command, env=env, check=True)
    wall = time.perf_counter() - began
    return Cost(cpu_seconds() - before, wall, compilers_started(folder) - compilers)


@click.command()
@click.argument("model", type=MODEL_NAME, default="mlp")
@click.option("--repeat", default=1, show_default=True, help="Number of runs; the table shows the medians.")
def main(model: str, repeat: int) -> None:
    """Compile the function of MODEL in processes that enable optdb in different ways."""
    flags = f"floatX={models.dtype_of(model)}"
    # The processes take turns, so that a busy phase of the machine affects all ways to enable optdb.
    rounds = [{entrance: measure(entrance, model, flags) for entrance in ENTRANCES} for _ in range(repeat)]
    title = f"{model}: CPU seconds, wall-clock seconds, compilers started"
    table = terminal.table("way in", *CACHES, left=["way in"], title=title)
    for entrance in ENTRANCES:
        cells = [_median([costs[entrance][cache] for costs in rounds]) for cache in CACHES]
        table.add_row(entrance.name, *(f"{cost.cpu:.2f}  {cost.wall:.2f}  {cost.compilers}" for cost in cells))
    terminal.console().print(table)


def _median(costs: list[Cost]) -> Cost:
    return sorted(costs, key=lambda cost: cost.cpu)[len(costs) // 2]


if __name__ == "__main__":
    main()
