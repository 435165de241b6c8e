"""Compiles translation units, as many at a time as there are processors.

The flags are Theano's, with three exceptions: no debug symbols unless ``cmodule.debug`` is set, precompiled headers if
many units include them, and, for GCC, no limit on inlining in large units.
"""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import theano
from theano import config
from theano.gof import cmodule

from optdb import trace_log
from optdb.host.theano.clinker.store import ModuleStore, rename
from optdb.host.theano.clinker.toolchain import file_stamp, toolchain
from optdb.host.theano.clinker.units import (
    COMMON_HEADERS,
    HARMLESS_HEADERS,
    LIGHT_HEADERS,
    Environment,
    Translation,
    group,
    unit_text,
)

MIN_UNITS_TO_PRECOMPILE = 8

#: The number of characters of code that take about as long to compile as the headers of a translation unit.
MIN_UNIT_EFFORT = 60_000

MAX_MODULES_IN_UNIT = 40

Tell = Callable[[int, int], None]


def can_build(module: Translation) -> bool:
    """Return whether Theano's C++ compiler is the compiler for a module."""
    return module.environment.compiler is cmodule.GCC_compiler


class ModuleBuilder:
    """Compiles modules of a store into shared libraries."""

    def __init__(self, store: ModuleStore) -> None:
        self._store = store
        self._running: set[subprocess.Popen[bytes]] = set()

    def build(
        self, modules: Sequence[Translation], done: Callable[[Translation, Path], None], tell: Tell | None = None
    ) -> None:
        """Compile modules; skip those that do not compile.

        `done` is called with each compiled module and its shared library, and `tell` is called with the number of
        finished modules and the number of all modules.
        """
        parallel = processors()
        units = group(modules, parallel, MIN_UNIT_EFFORT, MAX_MODULES_IN_UNIT)
        finished = 0
        with self._pool(parallel) as pool:
            headers = self._precompiled(units, pool)
            waiting = {pool.submit(self._compile, unit, headers): unit for unit in units}
            while waiting:
                future = next(as_completed(waiting))
                unit = waiting.pop(future)
                library = future.result()
                if library is None and unit[0].can_share:
                    # At least one module of the unit does not compile, so compile each module alone, as Theano does.
                    waiting |= {pool.submit(self._compile, [plain(module)], {}): [plain(module)] for module in unit}
                    continue
                if library is not None:
                    for module in unit:
                        done(module, library)
                finished += len(unit)
                if tell is not None:
                    tell(finished, len(modules))

    @contextmanager
    def _pool(self, parallel: int) -> Iterator[ThreadPoolExecutor]:
        """Yield a pool of threads; kill the compilers if the block raises an exception, as on SIGINT."""
        pool = ThreadPoolExecutor(parallel, thread_name_prefix="optdb-compile")
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(self._running):
                process.kill()
            raise
        finally:
            pool.shutdown()

    def _compile(self, unit: Sequence[Translation], headers: dict[tuple[str, ...], Future[Path | None]]) -> Path | None:
        environment = unit[0].environment
        folder = self._store.stage().folder()
        source, library = folder / "unit.cpp", folder / "unit.so"
        source.write_text(unit_text(unit) if unit[0].can_share else unit[0].source + "\n")
        future = headers.get(_header_key(environment))
        header = future.result() if future is not None else None
        command = [
            *(config.cxx, cmodule.get_gcc_shared_library_arg(), "-pipe"),
            *(["-include", str(header)] if header is not None else []),
            *_flags(environment),
            *(f"-L{path}" for path in _present([*environment.lib_dirs, *cmodule.std_lib_dirs()])),
            *(_LARGE_UNITS if len(unit) > 1 and _is_gcc(config.cxx) else []),
            *("-o", str(library), str(source)),
            *(f"-l{name}" for name in [*environment.libraries, *cmodule.std_libs()]),
        ]
        # Look for the library, because the status is also 0 if another part of the program has waited for all children.
        is_built = self._run(command, lambda: _described(unit)) and library.exists()
        return library if is_built else None

    def _run(self, command: list[str], purpose: Callable[[], str]) -> bool:
        with trace_log.compiler_run("C compiler", purpose):
            return self._run_untraced(command)

    def _run_untraced(self, command: list[str]) -> bool:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        except OSError:
            return False
        self._running.add(process)
        try:
            return process.wait() == 0
        finally:
            self._running.discard(process)

    def _precompiled(
        self, units: Sequence[Sequence[Translation]], pool: Executor
    ) -> dict[tuple[str, ...], Future[Path | None]]:
        """Map each set of flags to its precompiled header, if the header exists or enough units use it."""
        if not _is_gcc(config.cxx):
            return {}
        environments: dict[tuple[str, ...], list[Environment]] = {}
        for unit in units:
            environment = unit[0].environment
            if unit[0].can_share and environment.includes == LIGHT_HEADERS:
                environments.setdefault(_header_key(environment), []).append(environment)
        headers: dict[tuple[str, ...], Future[Path | None]] = {}
        for key, members in environments.items():
            folder = self._store.folder / "headers" / _digest(key)
            if (folder / "common.h.gch").exists():
                headers[key] = pool.submit(folder.joinpath, "common.h")
            elif _count(folder.with_suffix(".uses"), len(members)) >= MIN_UNITS_TO_PRECOMPILE:
                headers[key] = pool.submit(self._precompile, folder, members[0])
        return headers

    def _precompile(self, folder: Path, environment: Environment) -> Path | None:
        """Precompile the common headers; return None on failure, or if another process is precompiling them."""
        with self._store.lock(f"headers-{folder.name}"):
            if (folder / "common.h.gch").exists():
                return folder / "common.h"
            return self._precompile_alone(folder, environment)

    def _precompile_alone(self, folder: Path, environment: Environment) -> Path | None:
        draft = self._store.stage().folder()
        header = draft / "common.h"
        header.write_text("".join(f"#include {name}\n" for name in LIGHT_HEADERS))
        command = [config.cxx, *_flags(environment), "-x", "c++-header", str(header), "-o", f"{header}.gch"]
        if not self._run(command, lambda: "the headers that modules have in common"):
            shutil.rmtree(draft)
            return None
        folder.parent.mkdir(parents=True, exist_ok=True)
        rename(draft, folder)
        folder.with_suffix(".uses").unlink(missing_ok=True)
        return folder / "common.h"


def seconds_for_headers() -> float:
    """Return how many CPU seconds it takes to compile a module that contains only Theano's headers."""
    with tempfile.TemporaryDirectory(prefix="optdb-headers-") as folder:
        source = Path(folder, "headers.cpp")
        source.write_text("".join(f"#include {name}\n" for name in COMMON_HEADERS + HARMLESS_HEADERS))
        includes = [f"-I{path}" for path in cmodule.std_include_dirs()]
        command = [config.cxx, *cmodule.GCC_compiler.compile_args(), *includes, "-c", str(source), "-o", f"{source}.o"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


#: GCC options that raise its inlining limits, which only large units reach.
_LARGE_UNITS = ("--param", "large-unit-insns=10000000")


def _flags(environment: Environment) -> list[str]:
    args = [flag for flag in environment.args if not (config.cmodule.remove_gxx_opt and flag.startswith("-O"))]
    return [
        *(["-g"] if config.cmodule.debug else []),
        *args,
        *(f"-I{path}" for path in _present([*environment.header_dirs, *cmodule.std_include_dirs()])),
        "-fvisibility=hidden",
    ]


def _described(unit: Sequence[Translation]) -> str:
    ops = list(dict.fromkeys(op for module in unit for op in module.ops))
    names = ", ".join(ops[:3]) + (f" and {len(ops) - 3} more ops" if len(ops) > 3 else "")
    return f"{len(unit)} {'module' if len(unit) == 1 else 'modules'}: {names}"


def _present(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if path]


def plain(module: Translation) -> Translation:
    """Return a copy of a module that is compiled alone, from Theano's unchanged code."""
    return replace(module, own_code="")


def _is_gcc(compiler: str) -> bool:
    """Return whether a compiler accepts GCC's own flags. On macOS, g++ is Clang."""
    name = Path(compiler).name
    return "g++" in name and "clang" not in name and sys.platform != "darwin"


def _header_key(environment: Environment) -> tuple[str, ...]:
    folders = [*environment.header_dirs, *cmodule.std_include_dirs()]
    stamps = [file_stamp(Path(folder, name)) for folder in folders for name in ("Python.h", "numpy/arrayobject.h")]
    versions = [sys.version, np.__version__, theano.__version__, toolchain(config.cxx).identity]
    return (*_flags(environment), *LIGHT_HEADERS, *versions, *map(str, stamps))


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _count(path: Path, number: int) -> int:
    """Add to a counter that is stored as the size of a file; return the new value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"." * number)
        return file.tell()
