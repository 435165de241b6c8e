"""Observers of new variables, which go also where a rewriter raises an error.

Rewriters that give their results the stack trace of the old ones observe which variables are made meanwhile
(``theano.gof.opt.inherit_stack_trace``). Where they raise, as `local_inplace_gemm` does for ``w + w.dot(x)``, Theano's
observer stays: it keeps each variable that is made later, with its graph, as long as the process lives. With it, no
variable is made in fewer steps either (``fresh``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from theano.gof import graph
from theano.gof.graph import Variable

from optdb.host.api.patching import Patch, PatchGroup

__all__ = ["install"]


def install() -> None:
    """Take observers of new variables away in any case, from now on."""
    _patches.install()


@contextmanager
def nodes_constructed() -> Iterator[list[Variable]]:
    """Yield a list, to which the variables that are made within the block are added."""
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
