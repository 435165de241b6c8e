"""Runs a suite file in one way (see `WAYS`), in a separate pytest process that is watched, and restarted if it dies.

If a process crashes, or makes no progress for longer than a test may take, the current test counts as failed. A new
process then runs the tests of the file that have no result yet.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.records import CRASHED, TIMEOUT, Log, Result, read_log

CHECKOUT = Path(__file__).resolve().parent.parent
POLL_SECONDS = 0.2
# If a test takes this many times its CPU limit in wall time, it is sleeping or stuck in C code.
PATIENCE = 4
# Maximum wall seconds to import a suite file.
START_SECONDS = 600
ERROR_LINES = 30
PLUGINS = ("conformance.plugin", "no:cacheprovider", "no:warnings")


@dataclass(frozen=True)
class Settings:
    """The settings with which suite files are run; they are the same for every file and way.

    Node ids are relative to `root`. `work` is the folder for logs, scratch files and compile directories. `timeout` is
    the maximum number of CPU seconds of a test or case. `select` is a ``-k`` expression. `python` is the interpreter
    whose Theano is run, and `host` is 'theano' or 'pytensor'.
    """

    root: Path
    work: Path
    flags: str
    timeout: float
    select: str = ""
    python: str = sys.executable
    host: str = "theano"


def run_file(settings: Settings, path: str, way: str, tests: Sequence[str] = ()) -> dict[str, Result]:
    """Run a suite file, or some of its tests, in as many processes as necessary; return the results by id, in order.

    Raise KeyboardInterrupt if pytest was interrupted.
    """
    folder = settings.work / way / "-".join([path.replace("/", "."), *(["alone"] if tests else [])])
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Result] = {}
    while True:
        log, ending = _run_process(settings, folder, list(tests) or [path], way, results)
        if ending == pytest.ExitCode.INTERRUPTED:
            # Ctrl-C on the terminal also interrupts pytest. Raise an error, because the results of a part of the file
            # must not look complete.
            raise KeyboardInterrupt
        results.update(log.results)
        if log.finished:
            return results
        lost = log.running or path
        known = lost in results
        stalled = ending == -signal.SIGKILL
        results[lost] = Result(lost, lost, TIMEOUT if stalled else CRASHED, error=_last_words(folder, ending))
        # Another process would not help, because this process died outside of any test, or at a test that it should
        # have skipped.
        if log.running is None or known:
            return results


def _run_process(
    settings: Settings, folder: Path, targets: list[str], way: str, known: dict[str, Result]
) -> tuple[Log, int]:
    """Start and watch one pytest process; return its output and its exit status."""
    events = folder / "events.jsonl"
    events.unlink(missing_ok=True)
    leave_out = folder / "leave-out.txt"
    leave_out.write_text("".join(f"{result.test}\n" for result in known.values()))
    command = [settings.python, "-m", "pytest", "-q", "-c", os.devnull, f"--rootdir={settings.root}"]
    command += [part for plugin in PLUGINS for part in ("-p", plugin)]
    # Without this option, pytest also lists the folders above the root, and makes a node for each file there.
    command += [f"--confcutdir={settings.root}"]
    command += ["-o", "python_classes=Test* test_*", "--continue-on-collection-errors", "--tb=short"]
    command += [f"--way={way}", f"--log-to={events}", f"--leave-out={leave_out}", f"--cpu-limit={settings.timeout}"]
    command += ["-k", settings.select] if settings.select else []
    command += [str(settings.root / target) for target in targets]
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=_environment(settings, folder), stdout=output, stderr=subprocess.STDOUT
        )
        try:
            _watch(process, events, settings.timeout)
        finally:
            process.kill()
            process.wait()
    return read_log(events), process.returncode


def _environment(settings: Settings, folder: Path) -> dict[str, str]:
    # PyTensor's suites import their own package `tests`.
    own = str(settings.root) if settings.host == "pytensor" else None
    python_path = os.pathsep.join(filter(None, [own, str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    return os.environ | {
        "PYTHONPATH": python_path,
        # Other installed plugins are not loaded, which also saves their import time.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        # With a fixed hash seed, the order of sets of strings, and therefore of rewrites, is the same in every run.
        "PYTHONHASHSEED": "0",
        "THEANORC": os.devnull,
        # Several threads of NumPy's BLAS would only add CPU time.
        "OPENBLAS_NUM_THREADS": "1",
        # With its own compile directory, a process does not wait for locks of other processes.
        f"{settings.host.upper()}_FLAGS": f"{settings.flags},base_compiledir={folder / 'compiledir'}",
    }


def _watch(process: subprocess.Popen[bytes], events: Path, timeout: float) -> None:
    """Wait until a process ends; kill the process if it writes nothing for too long."""
    last_change = time.monotonic()
    size = -1
    while process.poll() is None:
        time.sleep(POLL_SECONDS)
        new_size = events.stat().st_size if events.exists() else 0
        if new_size != size:
            size, last_change = new_size, time.monotonic()
        elif time.monotonic() - last_change > (PATIENCE * timeout if size else START_SECONDS):
            process.kill()
            return


def _last_words(folder: Path, ending: int) -> str:
    how = f"killed by {signal.Signals(-ending).name}" if ending < 0 else f"exit status {ending}"
    tail = (folder / "output.txt").read_text(errors="replace").splitlines()[-ERROR_LINES:]
    return "\n".join([*tail, f"the process ended: {how}"])
