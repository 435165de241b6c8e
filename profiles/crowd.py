"""Starts processes at once on one empty compiledir, and kills some: ``python -m profiles.crowd [MODELS]``.

Each process that is not killed must return correct results. Locks, incomplete files and running compilers must not be
left over. The time is compared with that of a single process that computes all functions. With ``--tiered``, each
function is called before and after its C code is built.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from profiles import isolated, terminal
from profiles import models as zoo
from profiles.cli import MODEL_NAME
from profiles.models.base import shared_variables
from profiles.stopwatch import cpu_seconds

MODELS = ("mlp", "convnet", "vae", "gru30")

#: The THEANO_FLAGS of every process, without the compiledir.
FLAGS = "floatX=float32,optdb.topo=True,optdb.clinker=True"

#: Maximum seconds that a compiler may run after the process that started it has ended.
SECONDS_FOR_END = 10.0

#: Maximum difference between the two tiers, relative to the largest number of an output.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Cost:
    """The cost of processes: wall seconds, and CPU seconds, which include the compilers that the processes start."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.1f} s, {self.cpu:.1f} CPU seconds"


def compute(names: Sequence[str]) -> list[list[Any]]:
    """Compile and call the functions of some models; return, for each model, the outputs as lists of numbers.

    Functions with tiers are called before and after their C code is built. Raise AssertionError if the values of the
    two calls differ.
    """
    import theano

    import optdb

    values = []
    for name in names:
        model = zoo.build(name)
        function = theano.function(model.inputs, model.outputs, updates=model.updates)
        variables = shared_variables(model)
        before = [variable.get_value() for variable in variables]
        outputs = [np.asarray(out, "float64") for out in function(*model.data)]
        if theano.config.optdb.tiered:
            optdb.wait(function)
            for variable, value in zip(variables, before, strict=True):
                variable.set_value(value)
            first, outputs = outputs, [np.asarray(out, "float64") for out in function(*model.data)]
            for one, other in zip(first, outputs, strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=TOLERANCE * np.abs(other).max(initial=0))
        values.append([out.tolist() for out in outputs])
    return values


class Crowd:
    """Starts processes that share a compiledir in a folder; each process may take `timeout` seconds."""

    def __init__(self, folder: Path, timeout: float, is_tiered: bool = False) -> None:
        self.compiledir = folder / "theano"
        self._env = {"XDG_CACHE_HOME": str(folder / "cache")}
        self._timeout = timeout
        self._flags = f"{FLAGS},optdb.tiered={is_tiered},base_compiledir={self.compiledir}"

    def run(self, names: Sequence[str], lifetime: float | None = None) -> list[list[Any]] | None:
        """Compute models in a new process; return None if the process was killed after `lifetime` seconds."""
        try:
            return isolated.call(
                "profiles.crowd:compute", names, flags=self._flags, env=self._env, timeout=lifetime or self._timeout
            )
        except isolated.TookTooLong:
            if lifetime is None:
                raise
            return None

    def programs(self) -> list[str]:
        """Return the command lines of the processes that still run; the list is empty if there is no ``/proc``."""
        mark = f"XDG_CACHE_HOME={self._env['XDG_CACHE_HOME']}\0".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (path / "environ").read_bytes():
                    found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue  # the process has ended, or belongs to another user
        return found

    def leftovers(self) -> list[Path]:
        """Return all locks, build folders and modules without a key that ended processes left in the compiledir."""
        found = []
        for compiledir in self.compiledir.glob("compiledir*"):
            found += [path for name in ("staging", "locks") for path in (compiledir / "optdb" / name).glob("*")]
            found += [made for made in compiledir.glob("tmp*") if not (made / "key.pkl").exists()]
        return found


class _Stopwatch:
    def __init__(self) -> None:
        self._began, self._began_cpu = time.perf_counter(), cpu_seconds()

    def read(self) -> Cost:
        return Cost(time.perf_counter() - self._began, cpu_seconds() - self._began_cpu)


@click.command()
@click.argument("chosen", metavar="[MODELS]...", nargs=-1, type=MODEL_NAME)
@terminal.count_option("--processes", 20, "Number of processes that start at once.")
@terminal.count_option("--killed", 5, "Number of processes that are killed.", least=0)
@click.option("--seed", default=0, show_default=True, help="Seed of the times at which processes are killed.")
@click.option("--timeout", default=1800.0, show_default=True, help="Timeout of a process, in seconds.")
@click.option("--tiered", is_flag=True, help="Compute in Python until C code is built, as with optdb.tiered.")
def main(chosen: tuple[str, ...], processes: int, killed: int, seed: int, timeout: float, tiered: bool) -> None:
    """Compare concurrent processes, each of which computes one of MODELS, with one process that does all the work.

    The exit status is 1 if a result differs from that of the single process, or if any files or compilers are left
    over.
    """
    if killed >= processes:
        raise click.BadParameter(f"killing {killed} of {processes} processes would leave none", param_hint="--killed")
    of_models = itertools.cycle(chosen or MODELS)
    names = list(itertools.islice(of_models, processes))
    with tempfile.TemporaryDirectory(prefix="optdb-crowd-") as made:
        watch = _Stopwatch()
        expected = Crowd(Path(made, "one"), timeout, tiered).run(names)
        assert expected is not None  # nothing kills it
        alone = watch.read()
        click.echo(f"one process with {processes} functions: {alone}")
        crowd = Crowd(Path(made, "all"), timeout, tiered)
        lifetimes = _lifetimes(processes, killed, alone.wall, seed)
        watch = _Stopwatch()
        with ThreadPoolExecutor(processes) as pool:
            results = list(pool.map(crowd.run, [[name] for name in names], lifetimes))
        together = watch.read()
        dead = results.count(None)
        ratio = together.wall / alone.wall
        click.echo(f"{processes} processes, {dead} of them killed: {together}, {ratio:.2f} times as long")
        alive = _ended(crowd)
        crowd.run(names[:1])  # a later process removes what killed processes left
        left = [*crowd.leftovers(), *alive]
    pairs = zip(names, expected, results, strict=True)
    wrong = sorted({name for name, values, result in pairs if result not in (None, [values])})
    click.echo(f"wrong numbers: {', '.join(wrong) or 'none'}; left over: {', '.join(map(str, left)) or 'nothing'}")
    sys.exit(1 if wrong or left else 0)


def _ended(crowd: Crowd) -> list[str]:
    """Wait for a limited time until all compilers of killed processes have ended; return those that still run."""
    deadline = time.monotonic() + SECONDS_FOR_END
    while (alive := crowd.programs()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return alive


def _lifetimes(processes: int, killed: int, longest: float, seed: int) -> list[float | None]:
    """Return, for each process, the seconds after which it is killed, or None if it is not killed."""
    rng = random.Random(seed)
    lifetimes = [rng.uniform(1, longest) if i < killed else None for i in range(processes)]
    rng.shuffle(lifetimes)
    return lifetimes


if __name__ == "__main__":
    main()
