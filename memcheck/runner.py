"""Starts workers that share the cases, watches the workers, and restarts a worker that dies, with the next run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from memcheck.case import load
from memcheck.records import Log, Result, read
from optdb.host.theano.clinker.building import processors
from optdb.runtime.device_profiles import DEVICE_KINDS

CHECKOUT = Path(__file__).resolve().parent.parent
POLL_SECONDS = 0.1
LAST_LINES = 20
#: Number of runs for which an additional worker is worth its start.
RUNS_OF_A_WORKER = 100
#: The compiler's optimization halves the number of instructions that Oclgrind interprets in GPU kernels, which have
#: large tiles. For CPU kernels, optimization takes longer than it saves. Optimization also removes loads of unused
#: values, so it is not used if all runs are selected.
_OPTIMIZED = "-O1"


class CannotRun(RuntimeError):
    """A worker ended before it started a case."""


@dataclass(frozen=True)
class Settings:
    """Which cases to run and how; `table` is their module, and `select` a text that the names of runs contain.

    `once` omits most runs of a case (see `memcheck.case.load`) and compiles the kernels for GPUs with optimization. One
    run may take `timeout` seconds, and the first run ten times as many, because it includes all imports.
    """

    table: str = "memcheck.cases"
    select: str = ""
    once: bool = False
    timeout: float = 60


def run_all(settings: Settings, device_kinds: Iterable[str] = DEVICE_KINDS) -> list[Result]:
    """Run the cases with the kernels for each kind of device, on all processors; return the result of each run."""
    shares = max(1, min(processors(), len(load(settings.table, settings.select, settings.once)) // RUNS_OF_A_WORKER))
    # Kernels for GPUs take longest under the memory checker, so they are started first.
    kinds = sorted(device_kinds, reverse=True)
    with ThreadPoolExecutor(processors()) as pool:
        tasks = [pool.submit(run_share, settings, kind, share, shares) for kind in kinds for share in range(shares)]
        return [result for task in tasks for result in task.result()]


def run_share(settings: Settings, device_kind: str, share: int, shares: int) -> list[Result]:
    """Run a share of the cases with the kernels for one kind of device; start a new process if one dies.

    Raise `CannotRun`, with the process's output, if a process ends outside of any run.
    """
    results: list[Result] = []
    first = 0
    with tempfile.TemporaryDirectory(prefix="memcheck-") as folder:
        while True:
            log, last_words = _run_process(settings, device_kind, first, (share, shares), Path(folder))
            results += log.results
            if log.finished:
                return results
            if log.running is None:
                raise CannotRun(f"the worker for kind {device_kind} cannot run: {last_words}")
            index, run, case = log.running
            results.append(Result(run, case, device_kind, error=last_words))
            first = index + 1


def _run_process(
    settings: Settings, device_kind: str, first: int, share: tuple[int, int], folder: Path
) -> tuple[Log, str]:
    """Start a worker, and wait for its end; return its records and the last lines of its output."""
    events, log, output = folder / "events.jsonl", folder / "oclgrind.log", folder / "output.txt"
    events.unlink(missing_ok=True)
    command = [sys.executable, "-m", "memcheck.worker", f"--table={settings.table}", f"--device-kind={device_kind}"]
    command += [f"--select={settings.select}", f"--first={first}"]
    command += ["--once"] * settings.once
    command += ["--share", *map(str, share), f"--log={log}", f"--write-to={events}"]
    with output.open("w") as stream:
        process = subprocess.Popen(
            command, env=_environment(settings, device_kind, log, folder), stdout=stream, stderr=subprocess.STDOUT
        )
        try:
            _watch(process, events, settings.timeout)
        finally:
            process.kill()
            process.wait()
    ending = process.returncode
    how = f"killed by {signal.Signals(-ending).name}" if ending < 0 else f"exit status {ending}"
    lines = output.read_text(errors="replace").splitlines()[-LAST_LINES:]
    return read(events), "\n".join([*lines, f"the process ended: {how}"])


def _environment(settings: Settings, device_kind: str, log: Path, folder: Path) -> dict[str, str]:
    python_path: Sequence[str] = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(python_path),
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_LOG": str(log),
        # Let Oclgrind report every finding, because equal findings are counted later.
        "OCLGRIND_MAX_ERRORS": "1000000000",
        "OCLGRIND_BUILD_OPTIONS": _OPTIMIZED if settings.once and device_kind == "gpu" else "",
        # With one thread, work items alternate in the same order each time.
        "OCLGRIND_NUM_THREADS": "1",
        "PYOPENCL_NO_CACHE": "1",
        "THEANORC": os.devnull,
        # No C compiler is needed, because kernels compute everything.
        "THEANO_FLAGS": f"cxx=,blas.ldflags=,base_compiledir={folder / 'theano'}",
    }


def _watch(process: subprocess.Popen[bytes], events: Path, timeout: float) -> None:
    """Wait until a process ends; kill the process if it writes nothing for too long."""
    size, last_change = -1, time.monotonic()
    while process.poll() is None:
        time.sleep(POLL_SECONDS)
        new_size = events.stat().st_size if events.exists() else -1
        if new_size != size:
            size, last_change = new_size, time.monotonic()
        elif time.monotonic() - last_change > (timeout if size > 0 else 10 * timeout):
            process.kill()
            return
