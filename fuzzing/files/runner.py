"""Starts workers; if one crashes or hangs, stores the mutant that it was loading, and continues with the next."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fuzzing.files.corpus import corpus
from fuzzing.files.mutants import mutant

CHECKOUT = Path(__file__).resolve().parent.parent.parent
#: Maximum seconds until a worker writes its first line, which it does after all its imports.
START_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Exported files, and mutants that violate the rules, are written to `folder`. Of the mutants with changed kernels,
    the share `kernels_share` is built and called. `planted` is a fault that a worker simulates in tests.
    """

    mutants: int
    folder: Path
    seed: int = 0
    workers: int = 2
    device: str = "auto"
    kernels_share: float = 0.02
    timeout_s: float = 120.0
    planted: str = ""


@dataclass
class Report:
    """`outcomes` counts mutants by kind and outcome; `wrong` maps a mutant's number to its violation of the rules.

    If the changed kernels of a mutant ended the worker, `by_kernels` maps the mutant's number to how the worker ended.
    `seconds` is the CPU time of all workers together, and `peak_bytes` is the largest memory of any worker.
    """

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: dict[int, str] = field(default_factory=dict)
    by_kernels: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    peak_bytes: int = 0


def run(settings: Settings, progress: Callable[[], Any] = lambda: None) -> Report:
    """Load mutants; return their outcomes."""
    settings.folder.mkdir(parents=True, exist_ok=True)
    report, lock = Report(), threading.Lock()
    with ThreadPoolExecutor(settings.workers) as pool:
        jobs = [pool.submit(_watch, settings, worker, report, lock, progress) for worker in range(settings.workers)]
        for job in jobs:
            job.result()
    _keep(settings, report)
    return report


def _watch(settings: Settings, worker: int, report: Report, lock: threading.Lock, progress: Callable[[], Any]) -> None:
    """Load a worker's share of mutants; start a new process if one dies."""
    first = worker
    while first < settings.mutants:
        number, kind, stage, ran_kernels = None, "", "load", None
        # Each worker has its own folder, because a worker that crashes does not remove its last mutant.
        with TemporaryDirectory(dir=_scratch(settings)) as scratch, _process(settings, first, scratch) as process:
            for line, trouble in _lines(process, settings.timeout_s):
                if trouble:
                    break
                if "kind" in line:
                    number, kind, stage = line["number"], line["kind"], "load"
                elif "stage" in line:
                    stage = line["stage"]
                    ran_kernels = number if stage == "kernels" else ran_kernels
                elif "outcome" in line:
                    assert number is not None  # the worker printed the number before it crashed
                    with lock:
                        report.outcomes[kind, line["outcome"]] += 1
                        report.seconds += line["seconds"]
                        if line["wrong"]:
                            report.wrong[number] = line["wrong"]
                    progress()
                elif "finished" in line:
                    report.peak_bytes = max(report.peak_bytes, line["peak"])
                    return
        if number is None:
            raise RuntimeError(f"a worker failed to start: {trouble}\n{_end_of_log(settings, first)}")
        if ran_kernels is not None and ran_kernels != number:
            # An earlier mutant's kernels may have corrupted the process, so another process loads the current mutant.
            report.by_kernels[ran_kernels] = f"{trouble} later, in {stage} of mutant {number}"
            first = number
            continue
        with lock:
            by_kernels = stage == "kernels"
            report.outcomes[kind, f"kernels: {trouble}" if by_kernels else trouble] += 1
            (report.by_kernels if by_kernels else report.wrong)[number] = f"{trouble} in {stage}"
        progress()
        first = number + settings.workers


def _process(settings: Settings, first: int, scratch: str) -> subprocess.Popen[str]:
    options = {
        **{"seed": settings.seed, "first": first, "stop": settings.mutants, "step": settings.workers},
        **{"device": settings.device, "kernels-share": settings.kernels_share, "planted": settings.planted},
        **{"folder": scratch, "exports": settings.folder / "exports"},
    }
    args = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    with _log(settings, first).open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "fuzzing.files.worker", *args],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")])},
        )


def _scratch(settings: Settings) -> Path:
    """Return a folder for the mutants, in memory if possible."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and os.access(shared, os.W_OK) else settings.folder


def _log(settings: Settings, first: int) -> Path:
    return settings.folder / f"worker{first % settings.workers}.log"


def _end_of_log(settings: Settings, first: int) -> str:
    return _log(settings, first).read_text(errors="replace")[-3000:]


def _lines(process: subprocess.Popen[str], timeout_s: float) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield pairs of an output line and ""; if the worker does not finish, then yield {} and how the worker ended."""
    lines: queue.Queue[str] = queue.Queue()

    output = process.stdout
    assert output is not None  # a pipe

    def read() -> None:
        for line in output:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    patience = START_TIMEOUT_S
    while True:
        try:
            line = lines.get(timeout=patience)
        except queue.Empty:
            process.kill()
            yield {}, "hangs"
            return
        if not line:
            yield {}, f"ends the process with status {process.wait()}"
            return
        patience = timeout_s
        yield json.loads(line), ""


def _keep(settings: Settings, report: Report) -> None:
    """Write the mutants that violated the rules, with their violations."""
    originals = corpus(settings.folder / "exports")
    for number, what in sorted((*report.wrong.items(), *report.by_kernels.items())):
        made = mutant(originals, settings.seed, number)
        folder = settings.folder / ("wrong" if number in report.wrong else "kernels")
        folder.mkdir(exist_ok=True)
        (folder / f"{settings.seed}-{number}.optdb").write_bytes(made.content)
        (folder / f"{settings.seed}-{number}.txt").write_text(f"{made.original.name}, {made.kind}\n{what}\n")
