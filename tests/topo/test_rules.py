"""For each node, the engine tries the rules that track the node's op."""

from __future__ import annotations

import theano.tensor as tt
from theano.gof import local_optimizer
from theano.gof.opt import EquilibriumOptimizer
from theano.tensor.elemwise import Elemwise

from optdb.host.api.rewriters import FunctionNodeRewriter
from optdb.topo.rules import RuleTable


class Special(Elemwise):
    """A subclass of Elemwise: rewriters that track it do not track its parent."""


def rewriter(name, tracks):
    def f(fgraph, node):
        return None

    f.__name__ = name
    return FunctionNodeRewriter(f, tracks)


def names(table, op):
    return [rule.name for rule in table.rules_for(op)]


def test_rules_are_found_by_class_and_by_instance():
    table = RuleTable([rewriter("of_class", [Elemwise]), rewriter("of_exp", [tt.exp]), rewriter("of_dot", [tt.Dot])])
    assert names(table, tt.exp) == ["of_class", "of_exp"]
    assert names(table, tt.log) == ["of_class"]
    assert names(table, tt.basic._dot) == ["of_dot"]


def test_untracked_come_first_then_class_then_instance():
    table = RuleTable(
        [
            rewriter("instance1", [tt.exp]),
            rewriter("class1", [Elemwise]),
            rewriter("all1", None),
            rewriter("instance2", [tt.exp]),
            rewriter("all2", None),
            rewriter("class2", [Elemwise]),
        ]
    )
    assert names(table, tt.exp) == ["all1", "all2", "class1", "class2", "instance1", "instance2"]


def test_this_is_the_order_of_theano():
    rewriters = [
        rewriter("instance", [tt.exp]),
        rewriter("class", [Elemwise]),
        rewriter("all", None),
        rewriter("both", [tt.exp, Elemwise]),
    ]
    stock = EquilibriumOptimizer(rewriters, max_use_ratio=1)
    tried = [
        *stock.local_optimizers_all,
        *stock.local_optimizers_map.get(Elemwise, []),
        *stock.local_optimizers_map.get(tt.exp, []),
    ]
    assert names(RuleTable(rewriters), tt.exp) == [r.__name__ for r in tried]


def test_a_class_is_matched_exactly():
    table = RuleTable([rewriter("of_elemwise", [Elemwise])])
    assert names(table, Special(tt.exp.scalar_op)) == []
    assert names(RuleTable([rewriter("of_special", [Special])]), tt.exp) == []


def test_an_equal_op_is_the_same_op():
    table = RuleTable([rewriter("of_exp", [Elemwise(tt.exp.scalar_op)])])
    assert names(table, tt.exp) == ["of_exp"]


def test_theanos_own_kind_takes_part():
    @local_optimizer([tt.exp])
    def old_style(node):
        return [node.inputs[0]]

    (rule,) = RuleTable([old_style]).rules_for(tt.exp)
    x = tt.vector()
    assert rule.name == "old_style"
    assert rule.rewriter is old_style
    assert rule.transform(tt.exp(x).owner) == [x]


def test_the_answer_is_remembered_with_its_op():
    """A new op must not get the rules of a deleted op that had the same id."""
    table = RuleTable([rewriter("of_special", [Special])])
    for _ in range(100):
        assert names(table, Special(tt.exp.scalar_op)) == ["of_special"]
        assert names(table, Elemwise(tt.exp.scalar_op)) == []


def test_counters_start_at_zero():
    (rule,) = RuleTable([rewriter("r", None)]).rules_for(tt.exp)
    assert (rule.attempts, rule.applications, rule.nodes_made, rule.seconds) == (0, 0, 0, 0.0)
    assert "r" in repr(rule)
