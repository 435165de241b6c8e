"""What all tests share.

Compiled code and caches go to build/ in the checkout, unless the user says otherwise:
tests write nothing outside it. This is set in the environment, before Theano is imported,
and so holds for the processes that tests start too.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Compilers take more of the tests' time than anything else does. So the code is built for all processes together, and
# without optimizing, which changes no value: rounding is decided before. Tests of the C linker itself, tests with the
# mark `optimized`, and processes that tests start with `optimized=True`, have it compiled as users do.

#: THEANO_FLAGS that hold for all tests, unless the user says otherwise. Functions of Theano alone are built in batches.
FLAGS = {
    "base_compiledir": str(ROOT / "build" / "theano-cache"),
    "optdb.clinker": "True",
    "gcc.cxxflags": "-O0",
    # Variables note where they are made: one line of the stack does.
    "traceback.limit": "1",
}
#: PYTENSOR_FLAGS that hold for all tests, unless the user says otherwise. No test is of PyTensor's C code.
PYTENSOR_FLAGS = {"base_compiledir": str(ROOT / "build" / "pytensor-cache"), "cxx": ""}
#: What PoCL adds to the options of each program.
KERNEL_OPTIONS = "POCL_EXTRA_BUILD_FLAGS"
#: Where clang, in PoCL, and gcc look for the linker first.
LINKER_FOLDERS = "COMPILER_PATH"


def _set_environment() -> None:
    for variable, defaults in (("THEANO_FLAGS", FLAGS), ("PYTENSOR_FLAGS", PYTENSOR_FLAGS)):
        flags = os.environ.get(variable, "")
        ours = [f"{name}={value}" for name, value in defaults.items() if f"{name}=" not in flags]
        os.environ[variable] = ",".join(filter(None, [flags, *ours]))
    os.environ.setdefault("XDG_CACHE_HOME", str(ROOT / "build" / "cache"))
    os.environ.setdefault(KERNEL_OPTIONS, "-cl-opt-disable")
    _link_kernels_by_gold()
    # Oclgrind interprets instructions: there are half as many.
    os.environ.setdefault("OCLGRIND_BUILD_OPTIONS", "-O2")
    # Processors run a process of tests each; the threads of a BLAS would only wait for work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Hundreds of files are made and loaded here, and trusted. Tests of what is done for others say so.
    os.environ.setdefault("OPTDB_BUILD_IN_CHILD", "0")


def _link_kernels_by_gold() -> None:
    """Have PoCL link kernels with gold, where there is one: that takes half of the time that the usual linker takes."""
    gold = shutil.which("ld.gold")
    if gold is None or LINKER_FOLDERS in os.environ:
        return
    linker = ROOT / "build" / "linker" / "ld"
    linker.parent.mkdir(parents=True, exist_ok=True)
    # Another process may make it at the same time.
    with suppress(FileExistsError):
        linker.symlink_to(gold)
    os.environ[LINKER_FOLDERS] = str(linker.parent)


_set_environment()

import pyopencl  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

import optdb  # noqa: E402, F401 (before any test imports Theano)
from optdb.runtime import driver_batches  # noqa: E402
from tests.effort import examples  # noqa: E402
from tests.marks import pytest_collection_modifyitems, pytest_runtest_setup  # noqa: E402, F401 (hooks)


@pytest.fixture(autouse=True, scope="module")
def kernel_options(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have the driver optimize the kernels of modules with the mark `optimized`."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("optimized"):
            patch.delenv(KERNEL_OPTIONS)
        yield


# PoCL keeps what it compiled by source and options. PyOpenCL adds the folder of its headers, which no kernel of ours
# includes; without it, the environments with Theano and without it share what is kept.
pyopencl._DEFAULT_INCLUDE_OPTIONS.clear()

# Graphs are small, and many: collecting them rarely saves a tenth of the time. Tests that ask for garbage collect it.
gc.set_threshold(10_000, 20, 20)

# Batches of commands do not depend on when the compiler is done.
driver_batches.build_loop()

# Compiling takes what it takes, and CI is to fail for a change, not by chance.
settings.register_profile("optdb", deadline=None, derandomize=True, max_examples=examples(100))
settings.load_profile("optdb")
