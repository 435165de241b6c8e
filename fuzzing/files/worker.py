"""Loads mutants one after the other, with limits on memory; `fuzzing.files.runner` starts and watches this process.

A mutant's functions are bound to memory and kernels. The functions are only called if their kernels are unchanged. As
an exception, a few mutants with changed kernels are also called. Changed kernels may do anything, so crashes that they
cause are reported separately.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from fuzzing.files.corpus import corpus
from fuzzing.files.mutants import REFUSED_FORMS, Mutant, mutant
from optdb.runtime.context import Context
from optdb.runtime.exported import FileError, ShapeError, load

MEBIBYTE = 1 << 20
#: Maximum memory that a mutant may use; valid files need far less.
MAX_BYTES = 64 * MEBIBYTE
MAX_WORK_ITEMS = 1 << 16
#: Maximum growth of the worker's address space after its first mutant. Compilers also use a part of this growth.
EXTRA_ADDRESS_SPACE_BYTES = 1024 * MEBIBYTE
RECURSION_LIMIT = 10**6
#: Maximum CPU seconds to load a mutant.
MAX_LOAD_CPU_S = 5.0

#: Modules that may raise errors such as `TypeError` if a call has wrong arguments; the errors must have a message.
_IN_WORDS = ("calling.py", "tables.py")
_WORDS = re.compile(r"\w{3,}.* .*\w{3,}")


class Wrong(Exception):
    """Loading or calling a mutant violated the rules."""


def attempt(
    made: Mutant, path: Path, context: Context, rng: np.random.Generator, kernels_share: float, say: Any
) -> str:
    """Load a mutant and call its functions; return the outcome, or raise `Wrong` if it violates the rules."""
    write(made, path)
    start = time.process_time()
    try:
        there = load(
            path,
            context,
            max_host_bytes=MAX_BYTES,
            max_device_bytes=MAX_BYTES,
            max_work_items=MAX_WORK_ITEMS,
            build_in_child=False,
        )
    except Exception as error:
        if made.form in REFUSED_FORMS and isinstance(error, OSError):
            return "load: OSError"
        return f"load: {_in_words(error, FileError)}"
    finally:
        seconds = time.process_time() - start
        if seconds > MAX_LOAD_CPU_S:
            raise Wrong(f"took {seconds:.1f} s to load")
    repr(there)
    builds = rng.random() < kernels_share
    if made.new_programs and not builds:
        return "loaded"
    runs = builds or not made.new_kernels
    outcomes = []
    for name, method in there.methods.items():
        arguments = made.original.arguments.get(name, next(iter(made.original.arguments.values())))
        say("kernels" if made.new_kernels else "call")
        try:
            if runs:
                method(*arguments)
                method(*arguments)
                outcomes.append("called")
            else:
                method.prepare(*arguments)
                outcomes.append("bound")
        except Exception as error:
            outcomes.append(f"call: {_in_words(error, FileError, ShapeError, TypeError, ValueError, IndexError)}")
    return max(outcomes, default="loaded")


def _in_words(error: Exception, *kinds: type[Exception]) -> str:
    """Return the name of an error's type; raise `Wrong` if the type is not allowed, or if the error has no message."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    expected = isinstance(error, (FileError, ShapeError)) or Path(frame.filename).name in _IN_WORDS
    if isinstance(error, kinds) and expected and _WORDS.search(str(error)):
        return type(error).__name__
    raise Wrong("".join(traceback.format_exception(error))[-4000:])


def limit_memory() -> None:
    """Prevent this process from using much more memory than it uses now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + EXTRA_ADDRESS_SPACE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Opened:
    """Records the last disallowed file that Python opens while mutants are loaded."""

    def __init__(self, *allowed: Path) -> None:
        self._allowed = tuple(map(str, allowed))
        self.path: str | None = None
        self.watching = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        # If the file is given by a descriptor, it was already recorded when its path was opened.
        if (
            self.watching
            and not isinstance(args[0], int)
            and event in ("open", "os.remove", "os.rename", "subprocess.Popen", "socket.connect")
        ):
            path = os.fsdecode(args[0]) if isinstance(args[0], str | bytes) else str(args[0])
            # Allow Python's own files: Python reads sources for tracebacks, and modules when they are first imported.
            if not path.startswith(self._allowed) and not path.endswith((".py", ".pyc")):
                self.path = f"{event} {path}"


@click.command()
@click.option("--seed", default=0)
@click.option("--first", default=0)
@click.option("--stop", default=100)
@click.option("--step", default=1)
@click.option("--device", default="auto")
@click.option("--kernels-share", default=0.02)
@click.option("--folder", required=True, type=click.Path(path_type=Path))
@click.option("--exports", required=True, type=click.Path(path_type=Path))
@click.option("--planted", default="", help="A simulated fault of the worker, for tests: NUMBER:WHAT.")
def main(
    seed: int,
    first: int,
    stop: int,
    step: int,
    device: str,
    kernels_share: float,
    folder: Path,
    exports: Path,
    planted: str,
) -> None:
    """Load every STEP-th mutant from FIRST to STOP, and write the outcome of each mutant."""
    originals = corpus(exports)
    contexts = []
    for device_kind in ("cpu", "gpu"):
        context = Context("opencl" if device == "auto" else device)
        context.profile = context.profile.as_kind(device_kind)
        contexts.append(context)
    path = folder / f"{os.getpid()}.optdb"
    opened = Opened(path, folder, *map(Path, ("/dev/null", "/proc", "/sys", "/tmp")), *_caches())
    rng = np.random.default_rng([seed, first])
    _warm_up(originals, contexts, path)
    limit_memory()
    # The recursion limit is raised, as in programs that pickle large graphs. Unlimited recursion then crashes the
    # worker, and the crash is reported.
    sys.setrecursionlimit(RECURSION_LIMIT)
    for number in range(first, stop, step):
        made = mutant(originals, seed, number)
        _say(number=number, kind=made.kind)
        opened.path, opened.watching = None, True
        start = time.process_time()
        try:
            _plant(planted, number)
            share = kernels_share
            outcome = attempt(made, path, contexts[number // step % 2], rng, share, lambda stage: _say(stage=stage))
            wrong = None if opened.path is None else f"touched {opened.path}"
        except Wrong as error:
            outcome, wrong = "wrong", str(error)
        opened.watching = False
        _say(number=number, outcome=outcome, wrong=wrong, seconds=time.process_time() - start)
    remove(path)
    _say(finished=True, peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _warm_up(originals: Any, contexts: list[Context], path: Path) -> None:
    """Load the valid files and call their functions, so that their programs are built."""
    from fuzzing.files.mutants import packed

    for original in originals:
        path.write_bytes(packed(original.manifest, original.members))
        for context in contexts:
            there = load(path, context, build_in_child=False)
            for name, method in there.methods.items():
                method(*original.arguments[name])


def _caches() -> list[Path]:
    return [Path.home() / ".cache"] + [
        Path(os.environ[name]) for name in ("POCL_CACHE_DIR", "XDG_CACHE_HOME") if name in os.environ
    ]


def _plant(planted: str, number: int) -> None:
    """Simulate a fault of the worker if `planted` names the mutant's number."""
    chosen, _, what = planted.partition(":")
    if not what or int(chosen) != number:
        return
    if what == "crash":
        os.abort()
    elif what == "hang":
        time.sleep(3600)
    elif what == "memory":
        bytearray(4 * EXTRA_ADDRESS_SPACE_BYTES)
    elif what == "open":
        Path("/etc/hostname").read_bytes()
    else:
        raise Wrong(what)


def _say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


_LINKS = {"zeros": "/dev/zero", "null": "/dev/null", "terminal": "/dev/tty", "memory": "/proc/self/status"}


def write(made: Mutant, path: Path) -> None:
    """Remove the previous mutant at a path, and write the new one."""
    remove(path)
    if made.form in ("file", "sparse"):
        with path.open("wb") as file:
            file.write(made.content)
            file.truncate(max(made.nbytes, len(made.content)))
    elif made.form == "link":
        _target(path).write_bytes(made.content)
        path.symlink_to(_target(path))
    elif made.form == "fifo":
        os.mkfifo(path)
    elif made.form == "folder":
        path.mkdir()
    elif made.form == "loop":
        path.symlink_to(path)
    elif made.form == "socket":
        with socket.socket(socket.AF_UNIX) as server, _working_in(path.parent):
            server.bind(path.name)
    elif made.form != "missing":
        path.symlink_to(_LINKS[made.form])


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """Make a folder the working directory within the block: only short paths fit in a socket's address."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def remove(path: Path) -> None:
    """Remove the mutant at a path."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    _target(path).unlink(missing_ok=True)


def _target(path: Path) -> Path:
    """Return the path of the file to which the symbolic link points, if the mutant is a link."""
    return path.with_suffix(".target")


if __name__ == "__main__":
    main()
