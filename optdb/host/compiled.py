"""Sees each function that Theano compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
