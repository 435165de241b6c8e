"""``nose.plugins.attrib``: marks on tests."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def attr(*names: str, **values: object) -> Callable[[T], T]:
    """Return a decorator that sets attributes of a test."""

    def mark(test: T) -> T:
        for name, value in {**dict.fromkeys(names, True), **values}.items():
            setattr(test, name, value)
        return test

    return mark
