"""A pytest plugin: runs the tests that Theano wrote for nose, and that pytest no longer supports.

A yield test is a generator of functions, or of ``(function, *arguments)`` tuples, each of which is a case. The
generator runs inside one pytest item and each case in a subtest, between two steps of the generator as in nose: some of
Theano's cases close over a variable of the generator's loop. There may be a thousand cases, so the time limit applies
to each case.

A ``setUp`` is also called in plain classes, not only in unittest's.
"""

from __future__ import annotations

import inspect
import unittest
from types import MethodType

import pytest

from conformance import cpu_limit


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    """Collect a generator function as one item; leave everything else to pytest."""
    if not (collector.istestfunction(obj, name) and inspect.isgeneratorfunction(obj)):
        return None

    def run_cases(owner: object, subtests: pytest.Subtests) -> None:
        for index, step in enumerate(getattr(owner, name)()):
            case, *arguments = step if isinstance(step, tuple) else (step,)
            cpu_limit.start(collector.config)
            with subtests.test(msg=str(index)):
                case(*arguments)

    owner = collector.newinstance() if isinstance(collector, pytest.Class) else collector.obj
    return [pytest.Function.from_parent(collector, name=name, callobj=MethodType(run_cases, owner))]


@pytest.fixture(autouse=True)
def _set_up(request: pytest.FixtureRequest) -> None:
    """Call the ``setUp`` of a plain class before each of its tests."""
    instance = request.instance
    if hasattr(instance, "setUp") and not isinstance(instance, unittest.TestCase):
        instance.setUp()
