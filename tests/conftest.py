"""What all tests share.

Compiled code and caches go to build/ in the checkout, unless the user says otherwise:
tests write nothing outside it. This is set in the environment, before Theano is imported,
and so holds for the processes that tests start too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def _keep_inside_checkout() -> None:
    flags, ours = os.environ.get("THEANO_FLAGS", ""), f"base_compiledir={ROOT / 'build' / 'theano-cache'}"
    # A worker of xdist inherits the folder of the process that started it.
    if "base_compiledir" not in flags or ours in flags:
        # Processes that run side by side have a folder each, since Theano locks it while it compiles.
        process = os.environ.get("PYTEST_XDIST_WORKER", "") or os.environ.get("OPTDB_TESTS_HALF", "")
        os.environ["THEANO_FLAGS"] = f"{flags},{ours}{process}".strip(",")
    os.environ.setdefault("XDG_CACHE_HOME", str(ROOT / "build" / "cache"))
    # Hundreds of files are made and loaded here, and trusted. Tests of what is done for others say so.
    os.environ.setdefault("OPTDB_BUILD_IN_CHILD", "0")


_keep_inside_checkout()

import pytest  # noqa: E402
from hypothesis import is_hypothesis_test, settings  # noqa: E402

import optdb  # noqa: E402, F401 (before any test imports Theano)

#: With OPTDB_TESTS=quick, which `make test` sets, Hypothesis makes one of so many of the examples that a test asks for.
QUICK_SHARE = 4


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Make fewer examples with OPTDB_TESTS=quick; leave out every other file if OPTDB_TESTS_HALF is 1 or 2."""
    if os.environ.get("OPTDB_TESTS") == "quick":
        # Test functions of a class, or with parameters, share one function.
        for function in {item.function for item in items if hasattr(item, "function")}:
            _make_fewer_examples(function)
    half = os.environ.get("OPTDB_TESTS_HALF")
    if half is None:
        return
    files = {file: number for number, file in enumerate(dict.fromkeys(item.path for item in items))}
    chosen = [item for item in items if files[item.path] % 2 == int(half) - 1]
    config.hook.pytest_deselected(items=[item for item in items if files[item.path] % 2 != int(half) - 1])
    items[:] = chosen


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
