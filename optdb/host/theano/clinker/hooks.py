"""Hooks around the import of Theano's modules that start a compiler; they import other modules lazily.

``optdb.host.theano.importing.bootstrap`` registers these hooks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

__all__ = ["AROUND", "after_cmodule", "around_configdefaults", "around_extension"]


def _is_wanted() -> bool:
    from optdb.host.theano.clinker import plug

    return plug.is_wanted()


@contextmanager
def around_configdefaults(module: ModuleType) -> Iterator[None]:
    """Cache the compiler's answers to the queries that Theano makes while it declares its flags."""
    if not _is_wanted():
        yield
        return
    from optdb.host.theano.clinker.probing import remember_queries

    with remember_queries():
        yield


def after_cmodule(module: ModuleType) -> None:
    """Watch Theano's compiler class, and cache the results of its trial programs."""
    from optdb.host.theano.clinker.probing import remember_trials, watch_compiler

    watch_compiler(module)
    if _is_wanted():
        remember_trials(module)


@contextmanager
def around_extension(module: ModuleType) -> Iterator[None]:
    """Build one of the modules that Theano compiles for itself under its own lock."""
    from optdb.host.theano.clinker.extensions import build_alone

    with build_alone(module):
        yield


AROUND = {
    "theano.gof.cutils": around_extension,
    "theano.gof.lazylinker_c": around_extension,
}
