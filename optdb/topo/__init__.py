"""The rewrite engine, its database, and the plug that connects it to Theano.

Read from the bottom up::

    order      a topological order kept up to date while the graph changes
    worklist   the nodes still to be looked at, in that order
    rules      which rewriters to try on which node
    lineage    rewriters that undo each other
    merge      common subexpressions, found by one look-up
    engine     the fixed point over one graph
    rewriter   the engine as a graph rewriter of Theano's
    profile    its figures in Theano's report;  result: the same as an object
    db         TopoOptDB and register_topo
    powers     a rule that computes large powers by repeated squaring
    reshapes   rules that remove reshapes to the same shape, and write shapes in one form
    destroyer  whether a node may overwrite an input;  inplace: in-place elementwise ops
    fusion     elementwise fusion by groups;  gemm: sums of matrix products
    sums       reuses wide sums as terms of wider ones, before fusion
    scalars    recomputes shared scalar arithmetic inside its users, after fusion
    onepass    Theano's passes over the nodes that concern them
    translate  replaces Theano's queried optimizers by the engine's
    plug       enable, disable and mode
"""

from optdb.host import import_host

import_host()

from optdb.topo import powers as _powers  # noqa: F401  registers its rule
from optdb.topo import reshapes as _reshapes  # noqa: F401  registers its rule
from optdb.topo import scalars as _scalars  # noqa: F401  registers its rewriter
from optdb.topo import sums as _sums  # noqa: F401  registers its rewriter
from optdb.topo.db import TopoOptDB, register_topo, topo_db
from optdb.topo.plug import TopoMode, disable, enable, is_enabled, mode
from optdb.topo.result import TopoResult, collect
from optdb.topo.rewriter import TopoRewriter
from optdb.topo.worklist import Worklist

__all__ = [
    "TopoMode",
    "TopoOptDB",
    "TopoResult",
    "TopoRewriter",
    "Worklist",
    "collect",
    "disable",
    "enable",
    "is_enabled",
    "mode",
    "register_topo",
    "topo_db",
]
