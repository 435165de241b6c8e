"""What all tests share.

Compiled code and caches go to build/ in the checkout, unless the user says otherwise:
tests write nothing outside it. This is set in the environment, before Theano is imported,
and so holds for the processes that tests start too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Compilers take more of the tests' time than anything else does. So the code is built for all processes together, and
# without optimizing, which changes no value: rounding is decided before. Tests of the C linker itself, tests with the
# mark `optimized`, and other programs that tests start, on devices, have it compiled as users do.

#: THEANO_FLAGS that hold for all tests, unless the user says otherwise. Functions of Theano alone are built in batches.
FLAGS = {
    "base_compiledir": str(ROOT / "build" / "theano-cache"),
    "optdb.clinker": "True",
    "gcc.cxxflags": "-O0",
}
#: What PoCL adds to the options of each program.
KERNEL_OPTIONS = "POCL_EXTRA_BUILD_FLAGS"


def _set_environment() -> None:
    flags = os.environ.get("THEANO_FLAGS", "")
    ours = [f"{name}={value}" for name, value in FLAGS.items() if f"{name}=" not in flags]
    os.environ["THEANO_FLAGS"] = ",".join(filter(None, [flags, *ours]))
    os.environ.setdefault("XDG_CACHE_HOME", str(ROOT / "build" / "cache"))
    os.environ.setdefault(KERNEL_OPTIONS, "-cl-opt-disable")
    # Hundreds of files are made and loaded here, and trusted. Tests of what is done for others say so.
    os.environ.setdefault("OPTDB_BUILD_IN_CHILD", "0")


_set_environment()

import pytest  # noqa: E402
from hypothesis import is_hypothesis_test, settings  # noqa: E402

import optdb  # noqa: E402, F401 (before any test imports Theano)
from tests import slow_cases  # noqa: E402
from tests.slow_cases import pytest_runtest_setup  # noqa: E402, F401 (a hook)

#: With OPTDB_TESTS=quick, which `make test` sets, Hypothesis makes one of so many of the examples that a test asks for.
QUICK_SHARE = 4


@pytest.fixture(autouse=True, scope="module")
def kernel_options(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have the driver optimize the kernels of modules with the mark `optimized`."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("optimized"):
            patch.delenv(KERNEL_OPTIONS)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what takes long, and make fewer examples with OPTDB_TESTS=quick."""
    slow_cases.pytest_collection_modifyitems(config, items)
    if os.environ.get("OPTDB_TESTS") != "quick":
        return
    # Test functions of a class, or with parameters, share one function.
    for function in {item.function for item in items if hasattr(item, "function")}:
        _make_fewer_examples(function)


def _make_fewer_examples(function: Callable[..., object]) -> None:
    if not is_hypothesis_test(function):
        return
    # Hypothesis offers no other way to change the settings of a test that has some of its own.
    own = function._hypothesis_internal_use_settings
    fewer = max(5, own.max_examples // QUICK_SHARE)
    function._hypothesis_internal_use_settings = settings(own, max_examples=min(own.max_examples, fewer))


# Compiling takes what it takes, and CI is to fail for a change, not by chance.
settings.register_profile("optdb", deadline=None, derandomize=True)
settings.load_profile("optdb")
