"""Fixtures and settings of all tests.

Compiled code and caches are in build/ in the checkout, unless the user sets other folders: tests write nothing outside
it. The environment is set before Theano is imported, so the settings also apply to processes that tests start.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Compilers take most of the tests' time. Code is therefore built once for all processes, and without optimization.
# Results are the same as with optimization, because the code determines all rounding. Tests of the C linker itself,
# tests with the mark `optimized`, and processes that tests start with `optimized=True` compile as for users.

#: THEANO_FLAGS of all tests, unless the user sets others. The C code of functions that run on the host is built in
#: batches.
FLAGS = {
    "base_compiledir": str(ROOT / "build" / "theano-cache"),
    "optdb.clinker": "True",
    "gcc.cxxflags": "-O0",
    # Variables record where they are made: one line of the stack is enough.
    "traceback.limit": "1",
}
#: PYTENSOR_FLAGS of all tests, unless the user sets others. No test covers PyTensor's C code.
PYTENSOR_FLAGS = {"base_compiledir": str(ROOT / "build" / "pytensor-cache"), "cxx": ""}
#: The environment variable with options that PoCL adds to the options of each program.
KERNEL_OPTIONS = "POCL_EXTRA_BUILD_FLAGS"
#: The environment variable with the folders in which gcc and PoCL's clang first look for the linker.
LINKER_FOLDERS = "COMPILER_PATH"


def _set_environment() -> None:
    for variable, defaults in (("THEANO_FLAGS", FLAGS), ("PYTENSOR_FLAGS", PYTENSOR_FLAGS)):
        flags = os.environ.get(variable, "")
        ours = [f"{name}={value}" for name, value in defaults.items() if f"{name}=" not in flags]
        os.environ[variable] = ",".join(filter(None, [flags, *ours]))
    os.environ.setdefault("XDG_CACHE_HOME", str(ROOT / "build" / "cache"))
    os.environ.setdefault(KERNEL_OPTIONS, "-cl-opt-disable")
    _link_kernels_by_gold()
    # Without optimization, Oclgrind would interpret twice as many instructions.
    os.environ.setdefault("OCLGRIND_BUILD_OPTIONS", "-O2")
    # Products by warpgroups take more local memory than Oclgrind's 32 KiB.
    os.environ.setdefault("OCLGRIND_LOCAL_MEM_SIZE", "65536")
    # Each processor core already runs a test process; more threads of a BLAS would only wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Tests export and load hundreds of files, which they trust, so no rehearsal in a child process is needed. Only
    # tests of rehearsals enable rehearsals.
    os.environ.setdefault("OPTDB_BUILD_IN_CHILD", "0")


#: A script that links with gold, which takes half of the usual linker's time. Gold spends two thirds of its time on the
#: symbols of libraries, which PoCL's kernels rarely need. Kernels are therefore first linked without libraries, and if
#: that fails, again with them. Programs of gcc, which `crti.o` identifies, are always linked with their libraries.
_LINKER = """\
#!/bin/sh
case " $* " in *"/crti.o "*) exec "{gold}" "$@" ;; esac
(
    for word do
        shift
        case $word in -l* | -L*) ;; *) set -- "$@" "$word" ;; esac
    done
    exec "{gold}" "$@" -z defs
) 2>/dev/null || exec "{gold}" "$@"
"""


def _link_kernels_by_gold() -> None:
    """Make PoCL link kernels with gold, if it is installed."""
    gold = shutil.which("ld.gold")
    if gold is None or LINKER_FOLDERS in os.environ:
        return
    linker = ROOT / "build" / "linker" / "ld"
    linker.parent.mkdir(parents=True, exist_ok=True)
    # Other processes may be creating or using the linker, so write another file, and rename it.
    written = linker.with_name(f"ld-{os.getpid()}")
    written.write_text(_LINKER.format(gold=gold))
    written.chmod(0o755)
    written.replace(linker)
    os.environ[LINKER_FOLDERS] = str(linker.parent)


_set_environment()

import pyopencl  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

import optdb  # noqa: E402 (before any test imports Theano)
from optdb import collector  # noqa: E402
from tests.effort import examples, is_quick  # noqa: E402
from tests.marks import pytest_collection_modifyitems, pytest_runtest_setup  # noqa: E402, F401 (hooks)


@pytest.fixture(autouse=True, scope="session")
def rare_full_collections() -> Iterator[None]:
    """Make full garbage collections during compilations five times rarer than they are for users.

    In tests, each full collection also walks the 400,000 objects of the tests themselves.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collector, "MOST_PROMOTED", 5 * collector.MOST_PROMOTED)
        yield


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Freeze all objects of xdist's worker processes before these processes end.

    Otherwise pytest collects garbage twice and Python three times, which takes 6 s after thousands of tests. Errors in
    these collections are printed, but fail no test.
    """
    if hasattr(session.config, "workerinput"):
        gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def kernel_options(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make the driver optimize the kernels of modules with the mark `optimized`."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("optimized"):
            patch.delenv(KERNEL_OPTIONS)
        yield


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Exclude the objects of other tests from garbage collections, which otherwise take a second or more.

    Since `UNASKED` is 0, each compilation checks whether objects are still frozen, so later tests can promote theirs.
    """
    monkeypatch.setattr(collector, "UNASKED", 0)
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def optimized_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the driver optimize the kernels of a single test."""
    monkeypatch.delenv(KERNEL_OPTIONS, raising=False)


@pytest.fixture(scope="module")
def engine_where_quick() -> Iterator[None]:
    """In quick runs, rewrite graphs with the engine, which takes a third of the time of Theano's own optimizer.

    In runs of all examples, Theano's own optimizer rewrites the graphs. The tests expect the same graphs from both.
    """
    with optdb.enable() if is_quick() else nullcontext():
        yield


# PoCL stores compiled programs by source and options. PyOpenCL adds an option with the folder of its headers, which no
# kernel of optdb includes. Without this option, environments with and without Theano share the stored programs.
pyopencl._DEFAULT_INCLUDE_OPTIONS.clear()

# Tests make many small graphs. Collecting garbage less often saves a tenth of the time. Tests that need a
# collection run it themselves.
gc.set_threshold(10_000, 20, 20)

# Compile times vary, and CI has to fail because of changes, not by chance.
settings.register_profile("optdb", deadline=None, derandomize=True, max_examples=examples(100))
settings.load_profile("optdb")
