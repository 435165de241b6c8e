"""Finds the longest calls while launches are merged, and their causes: ``python -m profiles.gpu.longest_calls``.

Each model trains in a separate process with empty caches. The duration of a call is compared with the median duration
of the calls before it. For each of the longest calls, the events during the call are listed. One thread samples the
positions of the other threads. If no sample was possible, another thread held the GIL, or the machine was busy.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import theano

import optdb
from optdb import trace_log
from optdb.opencl.registry import context_of, get_context
from profiles import models, terminal
from profiles.gpu.steps import SIZES, SMALL, last_plan
from profiles.steps_of_simulators import batches_of, compiled

MODELS = "gru30", "mlp", "lstm", "cifar_resnet"
#: A call is compared with the median of this many calls before it.
_BEFORE = 100
#: Minimum number of measured calls after optdb has chosen the launches to merge.
_SETTLED = 300
#: Seconds between two samples. Threads are sampled once a call has taken this multiple of the median time.
_LOOKS_EVERY_S, _LONG = 0.01, 2.0
_MOST_FRAMES = 5
#: Maximum number of listed calls that take more than twice the median time.
_MOST_SHOWN = 40
#: The event that is recorded if the thread could not sample.
_UNSEEN = "no other thread got Python's lock"
#: Garbage collections are only recorded if they take more than this number of seconds.
_LONG_COLLECTION_S = 1e-3


class Events(logging.Handler):
    """Records the times of messages of optdb and of long runs of Python's garbage collector."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.list: list[tuple[float, str]] = []
        self._collects_since = 0.0

    def note(self, text: str, at: float | None = None) -> None:
        """Record an event."""
        self.list.append((time.perf_counter() if at is None else at, text))

    def emit(self, record: logging.LogRecord) -> None:
        """Record a message."""
        self.note(f"{threading.current_thread().name}: {record.getMessage()}")

    def collector(self, phase: str, info: dict[str, int]) -> None:
        """Record a garbage collection; Python calls this method when a collection begins and when it ends."""
        now = time.perf_counter()
        if phase == "start":
            self._collects_since = now
        elif now - self._collects_since > _LONG_COLLECTION_S:
            self.note(f"the collector ran for {(now - self._collects_since) * 1e3:.1f} ms ({info['generation']})")

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Listen within the block."""
        logger = logging.getLogger("optdb")
        level = logger.level
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)
        gc.callbacks.append(self.collector)
        try:
            with trace_log.compiler_runs() as runs:
                yield
        finally:
            gc.callbacks.remove(self.collector)
            logger.removeHandler(self)
            logger.setLevel(level)
        for run in runs:
            self.note(f"{run.compiler} began: {run.purpose}", run.begin)
            self.note(f"{run.compiler} ended after {run.seconds:.3f} s: {run.purpose}", run.end)
        self.list.sort()


class Watch(threading.Thread):
    """A thread that records the positions of other threads during a long call, and the times when sampling failed."""

    def __init__(self, events: Events) -> None:
        super().__init__(name="watch", daemon=True)
        self._events = events
        self._main = threading.get_ident()
        self._seen: tuple[str, ...] = ()
        #: The time when the current call began; None between calls.
        self.began: float | None = None
        #: Seconds after which the threads are sampled during a call.
        self.limit_s = float("inf")
        self.ends = False

    def run(self) -> None:
        """Sample the positions of threads until the measurement ends."""
        last = time.perf_counter()
        while not self.ends:
            time.sleep(_LOOKS_EVERY_S)
            now, began = time.perf_counter(), self.began
            if now - last > 5 * _LOOKS_EVERY_S:
                self._events.note(f"{_UNSEEN} for {(now - last) * 1e3:.0f} ms", last)
            last = now
            if began is not None and now - began > self.limit_s:
                self._look()

    def _look(self) -> None:
        names = {thread.ident: thread.name for thread in threading.enumerate() if thread is not self}
        stacks = tuple(
            f"{names[ident]} is at {_shown(frame)}" for ident, frame in sys._current_frames().items() if ident in names
        )
        if stacks != self._seen:
            self._seen = stacks
            for stack in stacks:
                self._events.note(stack)


def _shown(frame: Any) -> str:
    entries = traceback.extract_stack(frame)[-_MOST_FRAMES:]
    return " > ".join(f"{Path(entry.filename).name}:{entry.lineno} {entry.name}" for entry in entries)


def measure(name: str, sizes: dict[str, Any], device: str, calls: int, most: float, emulates: bool) -> None:
    """Train a model for at most `most` seconds, and print its longest calls."""
    started = time.perf_counter()
    model = models.build(name, **sizes)
    batches = batches_of(model, 4)
    events = Events()
    watch = Watch(events)
    seconds: list[float] = []
    begins: list[float] = []
    settled_at = None
    if emulates:
        _emulate(device)
    with optdb.SimulatorOCL(compiled(model), device) as sim, events.noted():
        watch.start()
        say(f"{name}: compiled after {time.perf_counter() - started:.1f} s")
        plan = None
        for batch in itertools.cycle(batches):
            watch.began = begin = time.perf_counter()
            sim(*batch)
            end = time.perf_counter()
            watch.began = None
            if end - started > most:
                break
            if plan is None:
                # Do not count this call and the calls before it, because they were recorded or made the plan.
                plan = last_plan(sim)
                continue
            seconds.append(end - begin)
            begins.append(begin)
            if len(seconds) % 50 == 0:
                watch.limit_s = max(_LONG * statistics.median(seconds[-50:]), 1e-3)
            if settled_at is None and plan.is_settled:
                settled_at = len(seconds)
                say(f"{name}: merged after call {settled_at}, {time.perf_counter() - started:.1f} s")
            if settled_at is not None and len(seconds) >= max(calls, settled_at + _SETTLED):
                break
        watch.ends = True
        watch.join()
        commands = f"{plan.commands} commands, {plan.enqueued} enqueued" if plan is not None else "no plan"
    report(name, commands, seconds, begins, calls, settled_at, events)


def report(
    name: str, commands: str, seconds: list[float], begins: list[float], calls: int, settled: int | None, events: Events
) -> None:
    """Print the median, the longest calls, and the events during them."""
    if not seconds:
        say(f"{name}: no call used a plan in time")
        return
    numbers = range(len(seconds))
    normal = [statistics.median(seconds[max(0, number - _BEFORE) : number] or seconds) for number in numbers]
    end = settled if settled is not None else len(seconds)
    say(f"{name}: {commands}; {len(seconds)} calls since the plan, {'' if settled else 'NOT '}settled")
    halves = (("until merged", seconds[:end]), ("since", seconds[end:]))
    say("   median " + ", ".join(f"{what} {statistics.median(part) * 1e3:.3f} ms" for what, part in halves if part))
    for what, last in ((f"first {calls}", calls), ("all", len(seconds))):
        numbers = range(1, min(last, len(seconds)))
        if not numbers:
            continue
        longest = max(numbers, key=seconds.__getitem__)
        over = sum(seconds[number] > 2 * normal[number] for number in numbers)
        say(
            f"   longest of the {what} calls: {seconds[longest] * 1e3:.3f} ms at call {longest}, "
            f"{seconds[longest] / normal[longest]:.1f} times the median before; {over} calls over twice"
        )
    worst = sorted(range(1, len(seconds)), key=lambda number: seconds[number] - normal[number], reverse=True)[:6]
    origin = begins[0]
    slow = [begins[number] - origin for number in range(1, len(seconds)) if seconds[number] > 2 * normal[number]]
    if slow:
        more = f", and {len(slow) - _MOST_SHOWN} more" * (len(slow) > _MOST_SHOWN)
        say(f"   calls over twice began after {', '.join(f'{when:.2f}' for when in slow[:_MOST_SHOWN])} s{more}")
    for number in sorted(worst):
        begin, length = begins[number], seconds[number]
        say(f"   call {number} at {begin - origin:.3f} s: {length * 1e3:.3f} ms, {length / normal[number]:.1f} times")
        for when, text in events.list:
            if begin - 1e-4 <= when <= begin + length:
                say(f"      +{(when - begin) * 1e3:.1f} ms {text}")
    say("   all messages, seconds since the plan:")
    for when, text in events.list:
        if when >= origin and not any(part in text for part in (" is at ", "the collector", _UNSEEN)):
            say(f"      {when - origin:.3f} {text}")


def _emulate(device: str) -> None:
    """Make a device merge launches after few calls, as a GPU does, so that this program can be tested without a GPU."""
    context = get_context(context_of(device))
    quirks = replace(context.profile.quirks, persistent_launches=True, launch_s=1e-5, kernel_compile_s=0.01)
    context.profile = replace(context.profile, quirks=quirks)


def say(line: str) -> None:
    """Print a line without buffering, because a process may be killed at any time."""
    print(line, flush=True)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(SIZES)))
@terminal.device_option("gpu")
@click.option("--calls", default=2000, show_default=True, help="Minimum number of calls after the plan is made.")
@click.option("--most", default=55.0, show_default=True, help="Maximum time for each model, in seconds.")
@click.option("--small", is_flag=True, help="Use the models' small sizes, for a quick test.")
@click.option("--emulates", is_flag=True, help="Merge launches early and as on a GPU, on any device.")
@click.option("--here", is_flag=True, hidden=True)
def main(names: tuple[str, ...], here: bool, small: bool, emulates: bool, **options: Any) -> None:
    """Find the longest calls of the models NAMES, or of gru30, mlp, lstm and cifar_resnet."""
    if here:
        for name in names:
            sizes = SMALL.get(name.split()[0], {}) if small else SIZES[name]
            with theano.change_flags(floatX="float32"):
                measure(name.split()[0], sizes, emulates=emulates, **options)
        return
    for name in names or MODELS:
        with tempfile.TemporaryDirectory(prefix="optdb-") as folder:
            places = {"CUDA_CACHE_PATH": "cuda", "XDG_CACHE_HOME": "xdg", "POCL_CACHE_DIR": "pocl"}
            env = {variable: str(Path(folder, place)) for variable, place in places.items()}
            # The driver does not create the folders that these variables name, so they must exist before it starts.
            for path in env.values():
                Path(path).mkdir(parents=True, exist_ok=True)
            flags = ",".join(filter(None, [os.environ.get("THEANO_FLAGS"), "floatX=float32"]))
            command = [sys.executable, "-m", "profiles.gpu.longest_calls", name, "--here"]
            command += [word for key, value in options.items() for word in (f"--{key}", str(value))]
            command += ["--small"] * small + ["--emulates"] * emulates
            subprocess.run(command, env={**os.environ, **env, "THEANO_FLAGS": flags}, check=False)


if __name__ == "__main__":
    main()
