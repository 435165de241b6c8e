"""optdb's one-pass optimizers skip the nodes that their rewriters do not track, and no others."""

from __future__ import annotations

import io

import pytest
import theano
import theano.tensor as tt
from theano.gof import FunctionGraph
from theano.gof.opt import (
    EquilibriumOptimizer,
    LocalOptGroup,
    LocalOptimizer,
    Optimizer,
    SeqOptimizer,
    TopoOptimizer,
    in2out,
    local_optimizer,
    out2in,
)
from theano.scan_module.scan_opt import PushOutSeqScan, remove_constants_and_unused_inputs_scan
from theano.tensor.elemwise import Elemwise
from theano.tensor.opt import (
    ShapeFeature,
    constant_folding,
    local_elemwise_alloc,
    local_fill_to_alloc,
    local_log_sum_exp,
)

from optdb.host.api.rewriters import trusted_tracks
from optdb.topo.engine import Engine
from optdb.topo.onepass import FoldingPass, OnePass, is_idle
from optdb.topo.rewriter import TopoRewriter
from optdb.topo.translate import translate


def as_theano_s(function, *tracks):
    """Make a rewriter whose function seems to be defined in Theano."""
    function.__module__ = "theano.tensor.opt"
    return local_optimizer(list(tracks))(function)


def graph(make):
    x = tt.dvector("x")
    return FunctionGraph([x], [make(x)], clone=True)


@pytest.mark.parametrize("way", [in2out, out2in])
def test_only_tracked_ops_are_offered(way):
    seen = []

    def look(node):
        seen.append(node.op)

    rewriter = translate(way(as_theano_s(look, tt.exp), name="look"))
    assert type(rewriter) is OnePass and rewriter.__name__ == "look"
    rewriter.optimize(graph(lambda x: tt.exp(tt.sin(tt.exp(x)))))
    assert seen == [tt.exp, tt.exp]
    seen.clear()
    rewriter.optimize(graph(tt.sin))
    assert seen == []


def test_a_tracked_class_stands_for_its_subclasses():
    class Special(Elemwise):
        pass

    seen = []

    def look(node):
        seen.append(type(node.op))

    rewriter = translate(in2out(as_theano_s(look, Elemwise), name="look"))
    rewriter.optimize(graph(Special(theano.scalar.exp)))
    assert seen == [Special]


def test_new_nodes_are_offered():
    """A pass also visits the new nodes that it makes."""

    def sin_to_exp(node):
        return [tt.exp(tt.cos(node.inputs[0]))] if node.op == tt.sin else [tt.tan(node.inputs[0])]

    rewriter = translate(in2out(as_theano_s(sin_to_exp, tt.sin, tt.cos), name="chain"))
    fgraph = graph(tt.sin)
    profile = rewriter.optimize(fgraph)
    assert [node.op for node in fgraph.toposort()] == [tt.tan, tt.exp]
    stream = io.StringIO()
    OnePass.print_profile(stream, profile)
    assert "(1, 2, 2)" in stream.getvalue()


@pytest.mark.parametrize("way", [in2out, out2in])
def test_nodes_are_offered_in_theano_s_order(way):
    """A pass from the outputs visits new nodes at once; a pass from the inputs visits them after all other nodes."""
    replacements = {tt.sin: tt.exp, tt.cos: tt.tan}
    seen = []

    def exchange(node):
        seen.append(node.op)
        return [replacements[node.op](node.inputs[0])] if node.op in replacements else None

    tracks = [tt.sin, tt.cos, tt.exp, tt.tan]
    way(local_optimizer(tracks)(exchange)).optimize(graph(lambda x: tt.sin(tt.sqr(tt.cos(x)))))
    by_theano = [op for op in seen if op != tt.sqr]
    seen.clear()
    translate(way(as_theano_s(exchange, *tracks))).optimize(graph(lambda x: tt.sin(tt.sqr(tt.cos(x)))))
    assert seen == by_theano
    assert len(seen) == 4


def test_a_pass_that_concerns_nothing_reports_nothing():
    rewriter = translate(in2out(as_theano_s(lambda node: None, tt.sin), name="nothing"))
    stream = io.StringIO()
    OnePass.print_profile(stream, rewriter.optimize(graph(tt.exp)))
    assert "(1, 1, 0)" in stream.getvalue()


def test_a_single_node_is_looked_at_once():
    def unroll(node):
        return [tt.sin(tt.cos(node.inputs[0]))]

    rewriter = translate(in2out(as_theano_s(unroll, tt.sin), name="unroll", ignore_newtrees=True))
    fgraph = graph(lambda x: tt.exp(tt.sin(x)))
    profile = rewriter.optimize(fgraph)
    assert [node.op for node in fgraph.toposort()] == [tt.cos, tt.sin, tt.exp]
    assert profile[1:4] == (1, 2, 3)


def test_folding_goes_on_with_what_becomes_constant():
    rewriter = translate(in2out(constant_folding, ignore_newtrees=True))
    assert type(rewriter) is FoldingPass
    fgraph = graph(lambda x: x + tt.exp(tt.sin(tt.constant([0.0, 1.0]))))
    assert not is_idle(rewriter, fgraph)
    rewriter.optimize(fgraph)
    assert [node.op for node in fgraph.toposort()] == [tt.add]
    assert is_idle(rewriter, fgraph)


def test_a_pass_whose_guard_rejects_all_is_idle():
    rewriter = translate(in2out(local_elemwise_alloc, name="alloc"))
    assert type(rewriter) is OnePass
    assert is_idle(rewriter, graph(lambda x: x + tt.exp(x)))
    fgraph = graph(lambda x: tt.exp(x) + tt.alloc(2.0, x.shape[0]))
    assert not is_idle(rewriter, fgraph)
    fgraph.attach_feature(ShapeFeature())
    rewriter.optimize(fgraph)
    assert tt.Alloc not in [type(node.op) for node in fgraph.toposort()]


def test_an_equilibrium_that_tracks_no_op_of_the_graph_is_idle():
    def to_cos(node):
        return [tt.cos(node.inputs[0])]

    rewriter = translate(EquilibriumOptimizer([as_theano_s(to_cos, tt.sin)], max_use_ratio=10))
    fgraph = graph(tt.exp)
    profile = rewriter.optimize(fgraph)
    assert (rewriter.result.visits, rewriter.result.rounds, rewriter.result.converged) == (0, 1, True)
    TopoRewriter.print_profile(io.StringIO(), profile)
    fgraph = graph(lambda x: tt.exp(tt.sin(x)))
    rewriter.optimize(fgraph)
    assert [node.op for node in fgraph.toposort()] == [tt.cos, tt.exp]


def test_a_third_party_s_rewriter_may_do_more_than_it_says():
    """A user's rewriter that tracks exp can also rewrite sin, because Theano's one-pass optimizers ignore tracks."""

    @local_optimizer([tt.exp])
    def sly(node):
        return [tt.cos(node.inputs[0])] if node.op == tt.sin else None

    rewriter = translate(in2out(sly, name="sly"))
    assert type(rewriter) is TopoOptimizer
    fgraph = graph(tt.sin)
    rewriter.optimize(fgraph)
    assert fgraph.outputs[0].owner.op == tt.cos


def test_whose_tracks_are_trusted():
    assert trusted_tracks(local_log_sum_exp) == [tt.log]
    assert trusted_tracks(LocalOptGroup(local_log_sum_exp, local_fill_to_alloc)) == [tt.log, tt.fill]
    sly = local_optimizer([tt.exp])(lambda node: None)
    assert trusted_tracks(sly) is None
    assert trusted_tracks(LocalOptGroup(local_log_sum_exp, sly)) is None


def test_a_rewriter_without_tracks_is_offered_all():
    class Everything(LocalOptimizer):
        def transform(self, node):
            return None

    assert trusted_tracks(Everything()) is None


class Note(Optimizer):
    """A third party's pass."""

    calls = 0

    def apply(self, fgraph):
        self.calls += 1


def equilibrium(*members):
    return translate(EquilibriumOptimizer([SeqOptimizer(list(members))], max_use_ratio=10))


def test_an_equilibrium_of_scan_passes_needs_a_scan():
    rewriter = equilibrium(PushOutSeqScan(), in2out(remove_constants_and_unused_inputs_scan))
    attached = []
    fgraph = graph(tt.exp)
    fgraph.attach_feature = attached.append
    rewriter.optimize(fgraph)
    assert not any(isinstance(feature, Engine) for feature in attached)
    rewriter.optimize(graph(lambda x: theano.scan(lambda v: tt.exp(v), x)[0]))
    assert rewriter.result.rounds == 2


def test_another_pass_among_them_runs_always():
    note = Note()
    equilibrium(PushOutSeqScan(), note).optimize(graph(tt.exp))
    assert note.calls == 1
