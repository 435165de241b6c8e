"""The parts of ``nose`` and its submodules that Theano's tests use; Python 3.12 cannot import ``nose`` itself.

``nose.tools`` contains decorators for tests, and unittest's assertions as functions; ``nose.plugins.attrib`` marks
tests.
"""

import functools
import re
import sys
import unittest
from collections.abc import Callable
from typing import Any, TypeVar
from unittest import SkipTest  # noqa: F401  Theano's tests import it

plugins = attrib = skip = tools = sys.modules[__name__]

T = TypeVar("T")


class _Case(unittest.TestCase):
    maxDiff = None

    def runTest(self) -> None:  # noqa: N802
        pass


_case = _Case()


def _snake(name: str) -> str:
    return re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", name)


# assert_raises, assert_equal, assert_almost_equal, ...
globals().update({_snake(name): getattr(_case, name) for name in dir(_case) if re.fullmatch("assert[A-Z].*", name)})
globals().update(
    {
        "assert_equals": _case.assertEqual,
        "assert_items_equal": _case.assertCountEqual,
        "assert_raises_regexp": _case.assertRaisesRegex,
        "assert_regexp_matches": _case.assertRegex,
    }
)


def ok_(condition: object, message: str | None = None) -> None:
    """Fail unless a condition holds."""
    if not condition:
        raise AssertionError(message)


def eq_(first: object, second: object, message: str | None = None) -> None:
    """Fail unless two objects are equal."""
    if not first == second:
        raise AssertionError(message or f"{first!r} != {second!r}")


def raises(*exceptions: type[BaseException]) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Return a decorator for a test that must raise."""

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **options: Any) -> None:
            with _case.assertRaises(exceptions):
                test(*args, **options)

        return run

    return decorate


def nottest(function: Any) -> Any:
    """Mark a function as not being a test."""
    function.__test__ = False
    return function


def istest(function: Any) -> Any:
    """Mark a function as a test."""
    function.__test__ = True
    return function


def attr(*names: str, **values: object) -> Callable[[T], T]:
    """Return a decorator that sets attributes on a test."""

    def mark(test: T) -> T:
        for name, value in {**dict.fromkeys(names, True), **values}.items():
            setattr(test, name, value)
        return test

    return mark
