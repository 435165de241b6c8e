"""Builds missing modules in the background: a queue of jobs, and threads that wait for compilers."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, TypeVar

from optdb.host.theano.clinker import building
from optdb.host.theano.clinker.building import ModuleBuilder
from optdb.host.theano.clinker.cache import Wanted, module_cache
from optdb.host.theano.clinker.tiers.runner import Cancelled, CompilerServer
from optdb.host.theano.clinker.tiers.turns import deferred_interrupts
from optdb.host.theano.clinker.units import Translation

_Result = TypeVar("_Result")

#: Seconds between polls. The code polls instead of using `threading.Condition`, whose lock could remain held after an
#: interrupt.
SECONDS_BETWEEN_LOOKS = 0.01

SECONDS_FOR_END = 2.0

QUEUED, RUNNING, DONE, FAILED, DROPPED = "queued", "running", "done", "failed", "dropped"


class Job:
    """A build that runs once for all nodes that need its result; messages call the nodes' ops by the names `ops`."""

    #: The length of the code to compile, in characters. If the nodes waiting for two jobs have run in Python for the
    #: same time, the job with more code starts first.
    effort = 0

    def __init__(self, name: str, ops: tuple[str, ...]) -> None:
        self.name = name
        self.ops = ops
        self.state = QUEUED
        self.reason = ""
        self._lock = threading.Lock()
        self._waiting: weakref.WeakSet[Any] = weakref.WeakSet()
        self._claims = 0

    def claim(self) -> None:
        """Keep the job in the queue until `add` is called."""
        with self._lock:
            self._claims += 1

    def add(self, thunk: Any) -> None:
        """Add a weak reference to a waiting thunk, which must have an attribute ``seconds``."""
        with self._lock:
            self._waiting.add(thunk)
            self._claims -= 1

    def requeue(self) -> None:
        """Queue a running job again in a forked child; replace the lock, which may have been held during the fork."""
        self._lock = threading.Lock()
        if self.state == RUNNING:
            self.state = QUEUED

    def drop_text(self) -> None:
        """Drop the data that only the build needs."""

    def _thunks(self) -> list[Any]:
        with self._lock:
            return list(self._waiting)

    @property
    def is_needed(self) -> bool:
        """Whether the function of a waiting node still exists or is being linked."""
        return self._claims > 0 or bool(self._thunks())

    @property
    def is_over(self) -> bool:
        """Whether the job is done, has failed, or was dropped because nothing needed it."""
        return self.state in (DONE, FAILED, DROPPED)

    @property
    def seconds(self) -> float:
        """How many seconds the nodes that wait for this job have so far spent in their Python code."""
        return sum(thunk.seconds for thunk in self._thunks())


class ModuleJob(Job):
    """The build of one module."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__(wanted.module_hash, wanted.translation.ops)
        #: The module to build; None when the job is over.
        self._wanted: Wanted | None = wanted
        self.effort = wanted.translation.effort

    @property
    def wanted(self) -> Wanted:
        """The module to build; it must not be read after the job is over."""
        assert self._wanted is not None, f"module {self.name} is no longer wanted"
        return self._wanted

    def drop_text(self) -> None:
        """Drop the source code."""
        self._wanted = None


class ExtensionJob(Job):
    """A job that runs a program to build one of Theano's own extension modules."""

    #: The effort is measured in characters, as for modules.
    effort = 10 * building.MIN_UNIT_EFFORT

    def __init__(self, name: str, command: Sequence[str], env: dict[str, str]) -> None:
        super().__init__(name, ("Scan",))
        self.command = command
        self.env = env


class _Inline(Executor):
    def submit(self, function: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        future: Future[_Result] = Future()
        future.set_result(function(*args, **kwargs))
        return future


class BackgroundBuilder(ModuleBuilder):
    """Compiles one translation unit at a time with `run`, which returns whether a command succeeded."""

    def __init__(self, store: Any, run: Callable[[list[str]], bool]) -> None:
        super().__init__(store)
        self._run_by_server = run

    def _run_untraced(self, command: list[str]) -> bool:
        return self._run_by_server(command)

    def build(
        self, modules: Sequence[Translation], done: Callable[[Translation, Path], None], tell: Any = None
    ) -> None:
        """Compile modules that can share a translation unit; see `ModuleBuilder.build`."""
        modules = list(modules)
        library = self._compile(modules, self._precompiled([modules], _Inline()))
        if library is not None:
            for module in modules:
                done(module, library)
            return
        if not modules[0].can_share:
            return
        for module in map(building.plain, modules):
            library = self._compile([module], {})
            if library is not None:
                done(module, library)


class Background:
    """The jobs of this process, and the threads that build them with `run`, by default `CompilerServer.run`."""

    def __init__(self, run: Callable[..., bool] | None = None) -> None:
        self._server = CompilerServer()
        self.run = run or self._server.run
        self._lock = threading.RLock()
        self._jobs: dict[str, Job] = {}
        self._threads: set[threading.Thread] = set()
        self._is_ending = False
        self.finished = 0
        #: Whether this process is a forked child, which lacks the parent's threads.
        self.is_stalled = False
        os.register_at_fork(after_in_child=self._after_fork)

    def module(self, wanted: Wanted) -> Job:
        """Return the job that builds a module; the caller must add a thunk to it."""
        return self._job(wanted.module_hash, lambda: ModuleJob(wanted))

    def extension(self, name: str, command: Sequence[str], env: dict[str, str]) -> Job:
        """Return the job that builds an extension; the caller must add a thunk to it."""
        return self._job(name, lambda: ExtensionJob(name, command, env))

    def _job(self, name: str, make: Callable[[], Job]) -> Job:
        with self._lock:
            job = self._jobs.get(name)
            if job is None or job.state == FAILED:
                job = self._jobs[name] = make()
            # Claim the job under the lock, because threads drop unneeded jobs.
            job.claim()
            return job

    def start(self) -> None:
        """Start threads for the queued jobs, at most one for each processor."""
        with deferred_interrupts, self._lock:
            self.is_stalled = False
            queued = sum(job.state == QUEUED for job in self._jobs.values())
            if self._is_ending or not queued:
                return
            if not self._threads:
                # Exit functions run in reverse order, so register `end` after the cache's exit function.
                module_cache()
                atexit.unregister(self.end)
                atexit.register(self.end)
            for _ in range(min(queued, building.processors()) - len(self._threads)):
                thread = threading.Thread(target=self._work, name="optdb-tiers", daemon=True)
                self._threads.add(thread)
                thread.start()

    def wait(
        self, jobs: Iterable[Job], deadline: float | None = None, tell: Callable[[int], None] | None = None
    ) -> bool:
        """Wait until all jobs have ended or `deadline` (of `time.monotonic`) has passed; return whether all have ended.

        `tell` is called with the number of jobs that have ended.
        """
        jobs = list(jobs)
        if self.is_stalled:
            self.start()
        while (left := sum(not job.is_over for job in jobs)) and not self._is_ending:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(SECONDS_BETWEEN_LOOKS)
            if tell is not None:
                tell(len(jobs) - left)
        return not left

    def end(self) -> None:
        """Kill the compilers and release all locks at process exit."""
        with self._lock:
            self._is_ending = True
            threads = list(self._threads)
        self._server.close()
        deadline = time.monotonic() + SECONDS_FOR_END
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _after_fork(self) -> None:
        """Requeue the jobs that threads of the parent were building."""
        self._lock = threading.RLock()
        self._server.forget()
        self._threads = set()
        for job in self._jobs.values():
            job.requeue()
        self.is_stalled = any(job.state == QUEUED for job in self._jobs.values())

    def _work(self) -> None:
        try:
            while jobs := self._take():
                self._build(jobs)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
                is_last = not self._threads and not self._is_ending
            if is_last:
                self._close_idle_server()

    def _close_idle_server(self) -> None:
        with self._lock:
            if not self._threads:
                self._server.close()

    def _take(self) -> list[Job]:
        """Return the next jobs for this thread; if there are none, the thread ends."""
        with self._lock:
            for job in [job for job in self._jobs.values() if job.state == QUEUED and not job.is_needed]:
                job.state = DROPPED
                del self._jobs[job.name]
            queued = [job for job in self._jobs.values() if job.state == QUEUED]
            taken = [] if self._is_ending else next_unit(queued, building.processors())
            for job in taken:
                job.state = RUNNING
            if not taken:
                # Discard the thread while holding the lock, because `start` relies on each listed thread to take new
                # jobs.
                self._threads.discard(threading.current_thread())
            return taken

    def _build(self, jobs: list[Job]) -> None:
        """Build jobs; jobs without a result have failed or were cancelled."""
        done: set[Job] = set()
        otherwise = FAILED
        try:
            done = self._build_extension(jobs[0]) if isinstance(jobs[0], ExtensionJob) else self._build_modules(jobs)
        except Cancelled:
            otherwise = QUEUED
        except Exception as error:
            # The error may have other causes than the code, such as a full disk. The functions continue in Python, and
            # report the reason.
            for job in jobs:
                job.reason = str(error)
        with self._lock:
            for job in jobs:
                job.state = DONE if job in done else otherwise
                if job.is_over:
                    self._jobs.pop(job.name, None)
                    job.drop_text()
            self.finished += 1

    def _build_extension(self, job: ExtensionJob) -> set[Job]:
        # Try twice, because importing fails while another process is writing one of Theano's files.
        is_built = any(self.run(job.command, lambda: job.is_needed, job.env) for _ in range(2))
        return {job} if is_built else set()

    def _build_modules(self, jobs: list[Job]) -> set[Job]:
        cache = module_cache()
        modules = [job for job in jobs if isinstance(job, ModuleJob)]

        def run(command: list[str]) -> bool:
            return self.run(command, lambda: any(job.is_needed for job in jobs))

        cache.build([job.wanted for job in modules], builder=BackgroundBuilder(cache.store, run))
        return {job for job in modules if cache.find(job.wanted) is not None}


#: A translation unit contains at most this fraction of one compiler's share of the code. The other jobs are left for
#: later units, which are chosen by newer measurements.
_SHARE = 0.6

#: The limit is at least this number of characters, because parsing the headers would take more than a quarter of the
#: time of smaller units.
_MIN_EFFORT = 3 * building.MIN_UNIT_EFFORT


def next_unit(queued: Sequence[Job], processors: int) -> list[Job]:
    """Return the next jobs for one compiler: the jobs of the slowest nodes, then the longest jobs."""
    if not queued:
        return []
    ordered = sorted(queued, key=lambda job: (-job.seconds, -job.effort, job.name))
    first = ordered[0]
    if not isinstance(first, ModuleJob) or not first.wanted.translation.can_share:
        return [first]
    modules = [job for job in ordered if isinstance(job, ModuleJob)]
    most = max(_MIN_EFFORT, _SHARE * sum(job.effort for job in modules) / processors)
    unit: list[Job] = []
    effort = 0
    for job in modules:
        translation = job.wanted.translation
        if not translation.can_share or translation.environment != first.wanted.translation.environment:
            continue
        if unit and (effort + job.effort > most or len(unit) == building.MAX_MODULES_IN_UNIT):
            break
        unit.append(job)
        effort += job.effort
    return unit


background = Background()
