"""Theano's passes over Scans give the same results, with fewer copies."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof import FunctionGraph
from theano.printing import debugprint
from theano.scan_module import scan_opt, scan_utils
from theano.scan_module.scan_op import Scan

from optdb.host.api.session import optimizing
from optdb.host.theano.speedups import passes

x, w, h0 = tt.dmatrix("x"), tt.dmatrix("w"), tt.dvector("h0")


def loop(step, **kwargs):
    outputs, updates = theano.scan(step, **kwargs)
    assert not updates
    return outputs


a, b = tt.dtensor3("a"), tt.dtensor3("b")
PROGRAMS = {
    "recurrent": lambda: loop(lambda v, h: tt.tanh(tt.dot(h, w) + v), sequences=x, outputs_info=h0),
    "of a non-sequence": lambda: loop(lambda v, h: h * tt.exp(w[0]) + v, sequences=x, outputs_info=h0),
    "of a sequence": lambda: loop(lambda v, h: h + tt.exp(v) * 2, sequences=x, outputs_info=h0),
    "of a shuffled sequence": lambda: loop(lambda v, h: h + v.dimshuffle("x", 0).sum(0), sequences=x, outputs_info=h0),
    "all outside": lambda: loop(lambda v: v * 2 + tt.exp(h0), sequences=x),
    "nothing inside": lambda: loop(lambda v: v, sequences=x),
    "last sum of products": lambda: loop(
        lambda p, q, s: s + tt.dot(p, q), sequences=[a, b], outputs_info=tt.zeros((2, 2))
    )[-1],
    "all sums of products": lambda: loop(
        lambda p, q, s: s + tt.dot(p, q), sequences=[a, b], outputs_info=tt.zeros((2, 2))
    ),
    "until": lambda: loop(
        lambda v, h: (h + tt.exp(v), theano.scan_module.until(v.sum() > 3)), sequences=x, outputs_info=h0
    ),
    "a gradient": lambda: tt.grad(
        loop(lambda v, h: tt.tanh(tt.dot(h, w) + v), sequences=x, outputs_info=h0)[-1].sum(), w
    ),
}
PASSES = [
    scan_opt.PushOutNonSeqScan(),
    scan_opt.PushOutSeqScan(),
    scan_opt.PushOutDot1(),
    scan_opt.PushOutScanOutput(),
    scan_opt.ScanMerge(),
    scan_opt.ScanSaveMem(),
]


def rewritten(output):
    """Run all passes twice over a graph; return the printed graph after each pass."""
    fgraph = FunctionGraph([x, w, h0, a, b], [output], clone=True)
    texts = []
    for rewriter in PASSES * 2:
        rewriter.optimize(fgraph)
        texts.append(debugprint(fgraph, file="str"))
    return texts


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_graphs_are_theanos(program):
    output = PROGRAMS[program]()
    expected = rewritten(output)
    with optimizing():
        assert rewritten(output) == expected


@pytest.mark.parametrize("rewriter", [PASSES[i] for i in (0, 1, 3)], ids=lambda rewriter: type(rewriter).__name__)
def test_each_pass_is_tried_where_it_applies(rewriter):
    """Each pass changes at least one of the programs above, so they test all passes."""
    changed = 0
    for program in PROGRAMS.values():
        fgraph = FunctionGraph([x, w, h0, a, b], [program()], clone=True)
        before = debugprint(fgraph, file="str")
        with optimizing():
            rewriter.optimize(fgraph)
        changed += debugprint(fgraph, file="str") != before
    assert changed


def test_a_graph_without_scans_is_left_alone():
    fgraph = FunctionGraph([x], [tt.exp(x)], clone=True)
    fgraph.toposort = None
    with optimizing():
        for rewriter in PASSES:
            assert rewriter.optimize(fgraph) is None


def inner_graph():
    output = PROGRAMS["recurrent"]()
    (scan,) = (node.op for node in FunctionGraph([x, w, h0, a, b], [output]).apply_nodes if isinstance(node.op, Scan))
    return scan.inputs, scan.outputs


def test_a_copy_is_theanos_copy():
    inputs, outputs = inner_graph()
    outputs = [*outputs, inputs[0], tt.constant(2.0)]
    mine, theirs = (copy(inputs, outputs, "_new") for copy in (passes.reconstruct_graph, scan_utils.reconstruct_graph))
    assert debugprint(mine[1], file="str") == debugprint(theirs[1], file="str")
    assert [var.name for var in mine[0]] == [var.name for var in theirs[0]]
    old, new = (set(theano.gof.graph.ancestors(variables)) for variables in (outputs, mine[1]))
    assert not old & new, "constants are copied, too"
    assert mine[1][-2] is mine[0][0]
    values = [np.ones((2,) * var.ndim) for var in inputs]
    run = [theano.function(copy[0], copy[1], on_unused_input="ignore") for copy in (mine, theirs)]
    np.testing.assert_array_equal(run[0](*values)[0], run[1](*values)[0])


def test_a_shared_variable_is_not_copied():
    counter = theano.shared(1.0)
    v = tt.dscalar()
    _, (output,) = passes.reconstruct_graph([v], [v + counter])
    assert counter in theano.gof.graph.ancestors([output])


def test_a_copy_may_start_in_the_middle():
    v = tt.exp(tt.dscalar("v"))
    (start,), (output,) = passes.reconstruct_graph([v], [tt.sin(v)])
    assert output.owner.inputs == [start] and start.owner is None
