"""Rewriters ``f(node)`` and ``f(fgraph, node)``, and the values that they can return."""

from __future__ import annotations

import pytest
import theano
import theano.tensor as tt
from theano.gof import FunctionGraph, local_optimizer
from theano.gof.opt import LocalOptGroup, MergeOptimizer
from theano.tensor.elemwise import Elemwise

from optdb.host.api.replacements import BadReplacement, name_of, replacement_pairs
from optdb.host.api.rewriters import FunctionNodeRewriter, report_failure, transform_of


def exp_to_log(fgraph, node):
    """Replace exp by log."""
    return [tt.log(node.inputs[0])]


@pytest.fixture
def fgraph():
    x = tt.dvector("x")
    return FunctionGraph([x], [tt.sin(tt.exp(x))], clone=True)


@pytest.fixture
def node(fgraph):
    return fgraph.outputs[0].owner.inputs[0].owner


# -- plain functions as rewriters


def test_a_plain_function_becomes_a_rewriter(fgraph, node):
    rewriter = FunctionNodeRewriter(exp_to_log, [tt.exp])
    assert rewriter.tracks() == [tt.exp]
    assert str(rewriter) == name_of(rewriter) == "exp_to_log"
    assert rewriter.__doc__ == exp_to_log.__doc__
    for answer in (rewriter(fgraph, node), rewriter.transform(node), transform_of(rewriter)(node)):
        assert [var.owner.op for var in answer] == [tt.log]


def test_theano_can_run_it(fgraph):
    """Theano's own navigators can run a `FunctionNodeRewriter`."""
    rewriter = FunctionNodeRewriter(exp_to_log, [tt.exp])
    theano.gof.opt.in2out(rewriter).optimize(fgraph)
    assert [node.op for node in fgraph.toposort()] == [tt.log, tt.sin]


def test_theano_asks_for_every_node_and_is_told_no(fgraph):
    """Theano's one-pass optimizers do not use tracks, so the rewriter itself checks the op."""
    rewriter = FunctionNodeRewriter(exp_to_log, [tt.exp])
    assert rewriter.transform(fgraph.outputs[0].owner) is False
    by_class = FunctionNodeRewriter(exp_to_log, [Elemwise])
    assert by_class.transform(fgraph.outputs[0].owner)


def test_it_may_be_in_a_group(node):
    group = LocalOptGroup(FunctionNodeRewriter(exp_to_log, [tt.exp]))
    assert [var.owner.op for var in group.transform(node)] == [tt.log]


def test_requirements_are_called(fgraph):
    asked = []
    FunctionNodeRewriter(exp_to_log, requirements=[asked.append]).add_requirements(fgraph)
    assert asked == [fgraph]


@pytest.mark.parametrize(
    "function",
    [lambda node: None, lambda: None, lambda fgraph, node, more: None],
    ids=["one argument", "none", "three"],
)
def test_a_wrong_signature_is_refused_at_once(function):
    with pytest.raises(TypeError, match=r"must take \(fgraph, node\).*local_optimizer"):
        FunctionNodeRewriter(function)


@pytest.mark.parametrize(
    "function", [lambda *args: None, lambda fgraph, node, extra=1: None, exp_to_log], ids=["star", "default", "plain"]
)
def test_what_can_be_called_with_both_is_fine(function):
    assert FunctionNodeRewriter(function).tracks() is None


@pytest.mark.parametrize("tracks", [["exp"], [Elemwise, int], [None], [tt.dvector]], ids=str)
def test_tracks_must_be_ops(tracks):
    with pytest.raises(ValueError, match="tracks are Op classes or Op instances"):
        FunctionNodeRewriter(exp_to_log, tracks)


@pytest.mark.parametrize(
    ("track", "shown", "cure"),
    [
        (theano.scalar.sqrt, "sqrt", "tt.sqrt, or Elemwise, and test op.scalar_op in the function"),
        (theano.scalar.Sqrt, "Sqrt", "Elemwise, and test op.scalar_op in the function"),
        (theano.scalar.ScalarOp, "ScalarOp", "Elemwise, and test op.scalar_op in the function"),
    ],
    ids=["op", "class", "base"],
)
def test_scalar_ops_are_refused(track, shown, cure):
    """Scalar ops are only used inside Elemwise ops, so a rewriter that tracks one would never be called."""
    with pytest.raises(ValueError, match=f"(?s)'exp_to_log' tracks the scalar op {shown}, .*The cure: write {cure}$"):
        FunctionNodeRewriter(exp_to_log, [tt.exp, track])


def test_a_scalar_op_without_a_name_is_refused():
    composite = theano.scalar.Composite([x := theano.scalar.float64()], [theano.scalar.exp(x)])
    with pytest.raises(ValueError, match="The cure: write Elemwise"):
        FunctionNodeRewriter(exp_to_log, [composite])


def test_empty_tracks_are_refused():
    """A rewriter with an empty list of tracks is rejected, because it would never be called."""
    with pytest.raises(ValueError, match="tracks no op"):
        FunctionNodeRewriter(exp_to_log, [])


@pytest.mark.parametrize("tracks", [tt.exp, Elemwise, "exp"], ids=["op", "class", "name"])
def test_tracks_without_a_list_are_refused(tracks):
    with pytest.raises(TypeError, match=r"'exp_to_log' takes a list, .*: write tracks=\[op\], not tracks=op"):
        FunctionNodeRewriter(exp_to_log, tracks)


@pytest.mark.parametrize("tracks", [[tt.exp], [Elemwise], [tt.exp, Elemwise], None], ids=["op", "class", "both", "all"])
def test_tracks_may_be_classes_and_instances(tracks):
    assert FunctionNodeRewriter(exp_to_log, tracks).tracks() == tracks


def test_theanos_own_are_called_with_the_node_alone(fgraph, node):
    @local_optimizer([tt.exp])
    def old(node):
        return [node.inputs[0]]

    assert transform_of(old)(node) == [node.inputs[0]]
    assert name_of(old) == "old"


def test_the_name_in_a_database_wins():
    rewriter = FunctionNodeRewriter(exp_to_log)
    rewriter.name = "registered"
    assert name_of(rewriter) == "registered"
    assert "MergeOptimizer" in name_of(MergeOptimizer())


# -- replacements


def pairs_of(fgraph, node, replacements):
    return replacement_pairs(fgraph, "the rewriter", node, replacements)


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_is_paired_with_the_outputs(fgraph, node, kind):
    new = tt.log(node.inputs[0])
    assert pairs_of(fgraph, node, kind([new])) == ([(node.outputs[0], new)], ())


def test_a_dict_says_what_it_replaces(fgraph, node):
    out = fgraph.outputs[0]
    offered = {out: node.inputs[0], "remove": [node]}
    assert pairs_of(fgraph, node, offered) == ([(out, node.inputs[0])], [node])
    assert "remove" in offered, "the rewriter's own dict is left as it is"


def test_a_variable_by_itself_is_no_replacement(fgraph, node):
    assert pairs_of(fgraph, node, list(node.outputs)) == ([], ())
    assert pairs_of(fgraph, node, {}) == ([], ())


def test_none_is_for_what_nobody_uses(fgraph, node):
    with pytest.raises(BadReplacement, match="which is used"):
        pairs_of(fgraph, node, [None])
    fgraph.replace(fgraph.outputs[0], fgraph.inputs[0])
    assert pairs_of(fgraph, node, [None]) == ([], ())


@pytest.mark.parametrize("answer", [True, 3, "text", tt.dvector()], ids=["true", "number", "text", "variable"])
def test_other_types_are_refused(fgraph, node, answer):
    with pytest.raises(BadReplacement, match="the rewriter gave wrong type of replacement"):
        pairs_of(fgraph, node, answer)


@pytest.mark.parametrize("count", [0, 2])
def test_the_number_must_be_right(fgraph, node, count):
    with pytest.raises(BadReplacement, match=f"wrong number of replacements: {count} for the 1"):
        pairs_of(fgraph, node, [tt.log(node.inputs[0])] * count)


@pytest.mark.parametrize("answer", ["text", 3, tt.log(tt.dvector()).owner], ids=["text", "number", "node"])
def test_replacements_are_variables(fgraph, node, answer):
    with pytest.raises(BadReplacement, match=r"the rewriter gave .* instead of a variable"):
        pairs_of(fgraph, node, [answer])


def test_both_builtin_kinds_of_error_are_meant():
    """Theano raises ValueError for some bad replacements and TypeError for others, so `BadReplacement` is both."""
    assert issubclass(BadReplacement, ValueError)
    assert issubclass(BadReplacement, TypeError)


# -- failures


@pytest.mark.parametrize("policy", ["warn", "ignore"])
def test_failures_are_reported_as_the_user_says(policy, node, caplog):
    with theano.change_flags(on_opt_error=policy):
        report_failure(ValueError("bad"), None, [], FunctionNodeRewriter(exp_to_log), node)
    assert ("Optimization failure due to: exp_to_log" in caplog.text) == (policy == "warn")


@pytest.mark.parametrize("policy, error", [("raise", ValueError("bad")), ("warn", AssertionError("bad"))])
def test_failures_are_raised_as_the_user_says(policy, error, node):
    with theano.change_flags(on_opt_error=policy), pytest.raises(type(error), match="bad"):
        report_failure(error, None, [], FunctionNodeRewriter(exp_to_log), node)
