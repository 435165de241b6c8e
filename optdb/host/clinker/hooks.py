"""What happens around the import of Theano's modules that start a compiler; imports nothing before that.

``optdb.host.bootstrap`` puts these in its list.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

__all__ = ["AROUND", "after_cmodule", "around_configdefaults", "around_extension"]


def _is_wanted() -> bool:
    from optdb.host.clinker import plug

    return plug.is_wanted()


@contextmanager
def around_configdefaults(module: ModuleType) -> Iterator[None]:
    """Remember what the compiler says of itself while Theano's flags are declared."""
    if not _is_wanted():
        yield
        return
    from optdb.host.clinker.probing import remember_queries

    with remember_queries():
        yield


def after_cmodule(module: ModuleType) -> None:
    """Remember what Theano's compiler class finds out by trial programs."""
    if _is_wanted():
        from optdb.host.clinker.probing import remember_trials

        remember_trials(module)


@contextmanager
def around_extension(module: ModuleType) -> Iterator[None]:
    """Let one of the modules that Theano compiles for itself be built under a lock of its own."""
    from optdb.host.clinker.extensions import build_alone

    with build_alone(module):
        yield


AROUND = {
    "theano.gof.cutils": around_extension,
    "theano.gof.lazylinker_c": around_extension,
}
