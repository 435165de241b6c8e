"""One-pass optimizers skip what does not concern them, and nothing else."""

from __future__ import annotations

import io

import pytest
import theano
import theano.tensor as tt
from theano.gof import FunctionGraph
from theano.gof.opt import LocalOptGroup, LocalOptimizer, TopoOptimizer, in2out, local_optimizer, out2in
from theano.tensor.elemwise import Elemwise
from theano.tensor.opt import local_fill_to_alloc, local_log_sum_exp

from optdb.host.rewriters import trusted_tracks
from optdb.topo.onepass import OnePass
from optdb.topo.translate import translate


def as_theano_s(function, *tracks):
    """Make a rewriter that passes for one of Theano's."""
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
    """What a replacement brings in is looked at in the same pass."""

    def sin_to_exp(node):
        return [tt.exp(tt.cos(node.inputs[0]))] if node.op == tt.sin else [tt.tan(node.inputs[0])]

    rewriter = translate(in2out(as_theano_s(sin_to_exp, tt.sin, tt.cos), name="chain"))
    fgraph = graph(tt.sin)
    profile = rewriter.optimize(fgraph)
    assert [node.op for node in fgraph.toposort()] == [tt.tan, tt.exp]
    stream = io.StringIO()
    OnePass.print_profile(stream, profile)
    assert "(1, 2, 2)" in stream.getvalue()


def test_a_pass_that_concerns_nothing_reports_nothing():
    rewriter = translate(in2out(as_theano_s(lambda node: None, tt.sin), name="nothing"))
    stream = io.StringIO()
    OnePass.print_profile(stream, rewriter.optimize(graph(tt.exp)))
    assert "(1, 1, 0)" in stream.getvalue()


def test_a_third_party_s_rewriter_may_do_more_than_it_says():
    """It tracks exp and rewrites sin: Theano's pass lets it."""

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
