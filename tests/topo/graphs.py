"""Helpers of the engine's tests: they make rewriters, run the engine on a graph, and check for a fixed point."""

from __future__ import annotations

from contextlib import contextmanager
from copy import copy

import theano
from theano import tensor
from theano.compat import DefaultOrderedDict
from theano.gof import FunctionGraph
from theano.gof.opt import local_optimizer
from theano.misc.ordered_set import OrderedSet

from optdb.host.api.replacements import replacement_pairs
from optdb.host.api.rewriters import FunctionNodeRewriter, transform_of
from optdb.topo import TopoRewriter

#: The linker uses Python code only, so that no test waits for a compiler.
STOCK = theano.Mode("py", "fast_run")
PLAIN = theano.Mode("py", None)


def rewriter(tracks=None, **options):
    """Make a node rewriter from a function ``f(fgraph, node)``."""
    return lambda function: FunctionNodeRewriter(function, tracks, **options)


def old_style(*tracks):
    """Return a decorator that makes a rewriter from a function ``f(node)``, as Theano does."""
    return local_optimizer(list(tracks) or None)


def graph_of(inputs, *outputs):
    """Return a graph of copies of variables; the copies have the same names."""
    return FunctionGraph(list(inputs), list(outputs), clone=True)


@contextmanager
def uncached_constants():
    """Disable Theano's cache of constants, as theano.function does while it optimizes."""
    before = tensor.basic.constant.enable
    tensor.basic.constant.enable = False
    try:
        yield
    finally:
        tensor.basic.constant.enable = before


@contextmanager
def unchanged(database):
    """Let a test register rewriters in a shared database, and remove them afterwards."""
    saved = {name: copy(value) for name, value in vars(database).items()}
    saved["__db__"] = DefaultOrderedDict(OrderedSet)
    saved["__db__"].update((tag, members.copy()) for tag, members in database.__db__.items())
    try:
        yield
    finally:
        vars(database).update(saved)


def run(fgraph, *rewriters, **options):
    """Make the engine rewrite `fgraph` with these rewriters; return its result."""
    topo = TopoRewriter(list(rewriters), **options)
    with uncached_constants():
        topo.optimize(fgraph)
    fgraph.check_integrity()
    return topo.result


def ops(fgraph):
    """Return the ops of a graph, operands first."""
    return [node.op for node in fgraph.toposort()]


def applicable(fgraph, rewriters):
    """Return all pairs (rewriter, node) for which the rewriter would still change the node of `fgraph`.

    As in the engine, a result is a change if it replaces a variable by another variable. This function does not change
    the graph.
    """
    found = []
    for node in fgraph.toposort():
        for one in rewriters:
            tracks = one.tracks()
            if tracks is not None and node.op not in tracks and type(node.op) not in tracks:
                continue
            offered = transform_of(one)(node)
            if offered is None or offered is False:
                continue
            if replacement_pairs(fgraph, one, node, offered)[0]:
                found.append((one, node))
    return found
