"""Observers of new variables that are also removed if a rewriter raises an error.

Rewriters that copy the old variables' stack trace to their results observe which variables are made meanwhile
(``theano.gof.opt.inherit_stack_trace``). If they raise, as `local_inplace_gemm` does for ``w + w.dot(x)``, Theano's
observer stays: it keeps each later variable, with its graph, alive until the process exits. While it is there,
``fresh`` cannot speed up making variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from theano.gof import graph
from theano.gof.graph import Variable

from optdb.host.api.patching import Patch, PatchGroup

__all__ = ["install"]


def install() -> None:
    """Remove observers of new variables even if the block raises, from now on."""
    _patches.install()


@contextmanager
def nodes_constructed() -> Iterator[list[Variable]]:
    """Yield a list to which the variables made in the block are appended."""
    made: list[Variable] = []
    observer = made.append
    Variable.append_construction_observer(observer)
    try:
        yield made
    finally:
        Variable.remove_construction_observer(observer)


_patches = PatchGroup(
    "Observers of new variables",
    "from the import of Theano on",
    "nothing",
    [Patch(graph, "nodes_constructed", nodes_constructed, "after a rewriter that raises, all variables would be kept")],
)
