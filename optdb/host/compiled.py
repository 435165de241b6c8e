"""Sees each function that Theano compiles, and goes around what compiles it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from theano.compile.function_module import FunctionMaker

from optdb.host.patching import Patch


@contextmanager
def watching(see: Callable[[Any], None]) -> Iterator[None]:
    """Call `see` with each function that is compiled meanwhile.

    Parameters
    ----------
    see : callable
        Told the function; functions inside of others (loops of Scan) among them.
    """
    create = FunctionMaker.create

    def create_and_show(self: FunctionMaker, *args: Any, **kwargs: Any) -> Any:
        function = create(self, *args, **kwargs)
        see(function)
        return function

    patch = Patch(FunctionMaker, "create", create_and_show)
    patch.install()
    try:
        yield
    finally:
        patch.uninstall()


def go_around(surround: Callable[[], AbstractContextManager[None]]) -> None:
    """Enter a context manager around the compilation of each function's nodes, from now on.

    Parameters
    ----------
    surround : callable
        Makes it. Functions inside of others (loops of Scan) are compiled within the outer one's.
    """
    create = FunctionMaker.create

    @functools.wraps(create)
    def create_within(self: FunctionMaker, *args: Any, **kwargs: Any) -> Any:
        with surround():
            return create(self, *args, **kwargs)

    FunctionMaker.create = create_within
