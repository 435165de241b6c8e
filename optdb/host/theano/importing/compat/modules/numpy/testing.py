"""``numpy.testing`` with the decorators and the test runner that NumPy 1.25 removed."""

import unittest
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy.testing

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to


def skipif(condition: bool | Callable[[], bool], message: str = "Skipping test because of a condition.") -> Any:
    """Return a decorator that skips a test if a condition holds."""

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        return unittest.skipIf(condition() if callable(condition) else condition, message)(test)

    return decorate


def knownfailureif(condition: bool | Callable[[], bool], message: str = "Known failure.") -> Any:
    """Return a decorator for tests that are known to fail if a condition holds."""
    return skipif(condition, message)


def slow(test: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a test as slow."""
    test.slow = True  # type: ignore[attr-defined]  # functions have attributes
    return test


def setastest(is_test: bool = True) -> Any:
    """Return a decorator that marks a function as a test or as not a test."""

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        test.__test__ = is_test  # type: ignore[attr-defined]  # functions have attributes
        return test

    return decorate


dec = SimpleNamespace(skipif=skipif, knownfailureif=knownfailureif, slow=slow, setastest=setastest)


class Tester:
    """Replaces NumPy's test runner, which PyMC3 creates on import."""

    def __init__(self, *args: object, **options: object) -> None:
        pass

    def test(self, *args: object, **options: object) -> NoReturn:
        """Raise an error that says how to run tests with pytest."""
        raise NotImplementedError("NumPy no longer has a test runner. The cure: python -m pytest --pyargs PACKAGE")

    bench = test


__getattr__, __dir__ = fall_back_to(numpy.testing, globals())
