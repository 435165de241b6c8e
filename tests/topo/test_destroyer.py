"""After any changes to any graph, the incremental destroy handler agrees with Theano's handler."""

from __future__ import annotations

import pickle
from copy import deepcopy

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.compile.function_module import Supervisor
from theano.gof import Apply, FunctionGraph, InconsistencyError, Op, generic
from theano.gof.destroyhandler import DestroyHandler
from theano.gof.toolbox import ReplaceValidate

import optdb
from optdb.host.api.graph import io_toposort
from optdb.host.api.session import optimizing
from optdb.topo.destroyer import IncrementalDestroyHandler
from tests.effort import examples
from tests.topo.graphs import STOCK


class Play(Op):
    """An op with given destroy and view maps; it computes nothing."""

    def __init__(self, name, destroys=(), views=(), outputs=1, same=(), aliased=()):
        self.name = name
        if destroys:
            self.destroy_map = {out: [slot] for out, slot in enumerate(destroys)}
        if views:
            self.view_map = {out: [slot] for out, slot in enumerate(views)}
        self.destroyhandler_tolerate_same = list(same)
        self.destroyhandler_tolerate_aliased = list(aliased)
        self.outputs = outputs

    def make_node(self, *inputs):
        return Apply(self, list(inputs), [generic() for _ in range(self.outputs)])

    def perform(self, node, inputs, outputs):
        raise NotImplementedError

    def __str__(self):
        return self.name


OPS = {
    "pure": Play("pure"),
    "two": Play("two", outputs=2),
    "view": Play("view", views=[0]),
    "view last": Play("view last", views=[1]),
    "destroy": Play("destroy", destroys=[0]),
    "destroy last": Play("destroy last", destroys=[1]),
    "destroy both": Play("destroy both", destroys=[0, 1], outputs=2),
    "tolerates same": Play("tolerates same", destroys=[0], same=[(0, 1)]),
    "tolerates aliased": Play("tolerates aliased", destroys=[0], aliased=[(0, 1)]),
}


class Side:
    """A graph with a destroy handler; the tests apply the same changes to two such graphs."""

    def __init__(self, make_handler, protect):
        self.inputs = [generic(f"i{i}") for i in range(3)]
        self.variables = list(self.inputs)
        self.make_handler = make_handler
        self.protect = protect

    def build(self, steps):
        for name, first, second in steps:
            self.variables += self.node(name, first, second)

    def node(self, name, first, second):
        pick = [self.variables[index % len(self.variables)] for index in (first, second)]
        return OPS[name](*pick, return_list=True)

    def close(self):
        outputs = [var for var in self.variables[3:] if not getattr(var, "used", False)][-3:]
        self.fgraph = FunctionGraph(self.inputs, outputs or self.inputs[:1], clone=False, features=[ReplaceValidate()])
        self.fgraph.attach_feature(Supervisor(self.inputs[: self.protect]))
        with optimizing():
            handler = self.make_handler()
        self.fgraph.attach_feature(handler)
        return self.consistent()

    def consistent(self):
        try:
            self.fgraph.validate()
        except InconsistencyError:
            return False
        return True

    def replace(self, which, name, first, second):
        old = self.variables[which % len(self.variables)]
        new = self.node(name, first, second)[0]
        try:
            self.fgraph.replace_all_validate([(old, new)], reason="play")
        except InconsistencyError:
            return False
        self.variables.append(new)
        return True

    def facts(self):
        number = {var: i for i, var in enumerate(self.variables)}
        live = [var for var in self.variables if var in self.fgraph.variables]
        name = {var.owner: number[var] for var in reversed(live) if var.owner is not None}
        after = {
            name[node]: {name[other] for other in before}
            for node, before in self.fgraph.destroy_handler.orderings(self.fgraph).items()
        }
        return after, [bool(self.fgraph.has_destroyers([var])) for var in live]


def stock_handler():
    handler = DestroyHandler.__new__(DestroyHandler)
    STOCK_INIT(handler)
    return handler


STOCK_INIT = DestroyHandler.__init__

names = st.sampled_from(sorted(OPS))
index = st.integers(0, 30)
graph_steps = st.lists(st.tuples(names, index, index), min_size=1, max_size=8)
moves = st.lists(st.tuples(index, names, index, index), max_size=12)


@pytest.mark.slow
@settings(max_examples=examples(400))
@given(graph_steps, moves, st.integers(0, 3))
def test_it_agrees_with_theano_s_handler(steps, moves, protect):
    """After any replacement, both handlers agree on validity, orderings and destroyed variables."""
    sides = [Side(stock_handler, protect), Side(DestroyHandler, protect)]
    verdicts = []
    for side in sides:
        side.build(steps)
        verdicts.append(side.close())
    theirs, ours = sides
    assert type(theirs.fgraph.destroy_handler) is DestroyHandler
    assert type(ours.fgraph.destroy_handler) is IncrementalDestroyHandler
    assert verdicts[0] == verdicts[1]
    if not verdicts[0]:
        return
    for move in moves:
        if depends_on_itself(theirs, move):
            continue
        assert theirs.replace(*move) == ours.replace(*move)
        assert theirs.facts() == ours.facts()
        check_order(ours.fgraph)


def depends_on_itself(side, move):
    """Return whether a change makes a variable depend on itself; Theano finds such cycles only if a node destroys."""
    which, _, first, second = move
    old, *used = (side.variables[i % len(side.variables)] for i in (which, first, second))
    if old not in side.fgraph.variables or any(var not in side.fgraph.variables for var in used):
        return True
    return old in theano.gof.graph.ancestors(used)


def check_order(fgraph):
    order = fgraph.destroy_handler.toposort()
    position = {node: i for i, node in enumerate(order)}
    assert set(position) == fgraph.apply_nodes
    for node in order:
        assert all(position[var.owner] < position[node] for var in node.inputs if var.owner is not None)
    for node, before in fgraph.destroy_handler.orderings(fgraph).items():
        assert all(position[other] < position[node] for other in before)


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(graph_steps, st.lists(st.tuples(index, index), max_size=8), st.integers(0, 3))
def test_its_forecast_comes_true(steps, tries, protect):
    """`may_destroy` predicts whether the graph is valid after a node has been replaced by a destroyer."""
    side = Side(DestroyHandler, protect)
    side.build(steps)
    if not side.close():
        return
    fgraph = side.fgraph
    protected = {*side.inputs[:protect], *fgraph.outputs}
    for which, slot in tries:
        candidates = [node for node in io_toposort(fgraph.inputs, fgraph.outputs) if node.op is OPS["pure"]]
        if not candidates:
            return
        node, slot = candidates[which % len(candidates)], slot % 2
        forecast = fgraph.destroy_handler.may_destroy(node, slot, {*protected, *fgraph.outputs})
        new = OPS["destroy last" if slot else "destroy"](*node.inputs)
        try:
            fgraph.replace_all_validate([(node.outputs[0], new)], reason="play")
        except InconsistencyError:
            assert not forecast
        else:
            assert forecast


# -- errors, in Theano's words


def refused(outputs, inputs, protected=()):
    with optimizing():
        fgraph = FunctionGraph(inputs, outputs, clone=False, features=[ReplaceValidate(), DestroyHandler()])
    fgraph.attach_feature(Supervisor(protected))
    with pytest.raises(InconsistencyError) as caught:
        fgraph.validate()
    return str(caught.value)


@pytest.fixture
def x():
    return generic("x")


@pytest.fixture
def y():
    return generic("y")


def test_two_destroyers_of_one_variable(x, y):
    assert "Multiple destroyers of x" in refused([OPS["destroy"](x, y), OPS["destroy"](x, y)], [x, y])


def test_who_destroys_what_it_reads(x, y):
    view = OPS["view"](x, y)
    assert "Input aliasing" in refused([OPS["destroy"](x, view)], [x, y])


def test_a_protected_input(x, y):
    assert "protected" in refused([OPS["destroy"](x, y)], [x, y], [x])


def test_an_output_that_is_overwritten(x, y):
    out = OPS["pure"](x, y)
    assert "protected" in refused([out, OPS["destroy"](out, y)], [x, y])


def test_a_constant(x):
    constant = theano.gof.Constant(generic, 3)
    assert "indestructible" in refused([OPS["destroy"](constant, x)], [x])


def test_what_is_tagged_indestructible(x, y):
    x.tag.indestructible = True
    assert "indestructible" in refused([OPS["destroy"](x, y)], [x, y])


def test_a_view_that_is_tagged_and_comes_later(x, y):
    """Reverting a replacement makes a graph valid again."""
    other = OPS["pure"](x, y)
    with optimizing():
        fgraph = FunctionGraph([x, y], [OPS["destroy"](x, y), other], clone=False)
        fgraph.attach_feature(ReplaceValidate())
        fgraph.attach_feature(DestroyHandler())
    fgraph.validate()
    view = OPS["view"](x, y)
    view.tag.indestructible = True
    with pytest.raises(InconsistencyError, match="indestructible"):
        fgraph.replace_all_validate([(other, OPS["pure"](view, y))])
    fgraph.validate()
    assert fgraph.outputs[1] is other


def test_a_view_that_is_pruned_with_its_last_user(x, y):
    """After the view is pruned, its former reader need not precede the destroyer, and may even depend on it."""
    view = OPS["view"](x, y)
    reader, overwritten = OPS["pure"](view, y), OPS["destroy"](x, y)
    with optimizing():
        fgraph = FunctionGraph([x, y], [reader, overwritten], clone=False, features=[ReplaceValidate()])
        fgraph.attach_feature(DestroyHandler())
    assert fgraph.destroy_handler.orderings(fgraph) == {overwritten.owner: [view.owner, reader.owner]}
    fgraph.replace_all_validate([(view, y)])
    assert fgraph.destroy_handler.orderings(fgraph) == {}
    fgraph.replace_validate(reader, OPS["pure"](overwritten, y))
    assert [node.op.name for node in fgraph.toposort()] == ["destroy", "pure"]


def test_readers_that_need_the_destroyer(x, y):
    overwritten = OPS["destroy"](x, y)
    assert "cycle" in refused([OPS["pure"](x, overwritten)], [x, y])


def test_an_op_that_destroys_two_inputs_at_once(x, y):
    op = Play("odd")
    op.destroy_map = {0: [0, 1]}
    with optimizing():
        fgraph = FunctionGraph([x, y], [op(x, y)], clone=False, features=[ReplaceValidate(), DestroyHandler()])
    with pytest.raises(NotImplementedError, match="destroys several"):
        fgraph.validate()


# -- life


def test_it_serves_one_graph(x, y):
    with optimizing():
        handler = DestroyHandler()
    first = FunctionGraph([x, y], [OPS["destroy"](x, y)], clone=True)
    first.attach_feature(handler)
    with pytest.raises(Exception, match="one FunctionGraph"):
        FunctionGraph([x, y], [OPS["pure"](x, y)], clone=True).attach_feature(handler)
    assert first.has_destroyers(first.inputs), "it still serves the first"


def test_a_graph_has_one(x, y):
    fgraph = FunctionGraph([x, y], [OPS["destroy"](x, y)], clone=False)
    with optimizing():
        fgraph.attach_feature(DestroyHandler())
        fgraph.attach_feature(DestroyHandler())
    assert sum(isinstance(feature, DestroyHandler) for feature in fgraph._features) == 1


def test_it_goes_when_it_is_told(x, y):
    fgraph = FunctionGraph([x, y], [OPS["destroy"](x, y)], clone=False)
    with optimizing():
        handler = DestroyHandler()
    fgraph.attach_feature(handler)
    fgraph.remove_feature(handler)
    assert not hasattr(fgraph, "destroyers") and not hasattr(fgraph, "destroy_handler")


def test_the_user_s_choice_of_detection_is_kept():
    """If users choose quick detection, Theano's own handler is used; optdb's handler only replaces exact detection."""
    with optimizing():
        assert type(DestroyHandler(algo="fast")) is DestroyHandler
        assert type(DestroyHandler(algo="regular")) is IncrementalDestroyHandler
    assert type(DestroyHandler()) is DestroyHandler


@pytest.mark.parametrize("copy", [deepcopy, lambda f: pickle.loads(pickle.dumps(f))], ids=["deepcopy", "pickle"])
def test_a_copied_function_has_theano_s_handler(copy):
    """A copy or a pickle has Theano's own handler, so that it can be loaded without optdb."""
    a, b = tt.dvectors("ab")
    shared = theano.shared(np.zeros(3))
    with optdb.enable():
        f = theano.function([a, b], tt.exp(a + b) * tt.sin(a), updates=[(shared, shared + a)], mode=STOCK)
    assert type(f.maker.fgraph.destroy_handler) is IncrementalDestroyHandler
    g = copy(f)
    assert type(g.maker.fgraph.destroy_handler) is DestroyHandler
    assert g.maker.fgraph.destroy_handler.orderings(g.maker.fgraph) == {}
    np.testing.assert_array_equal(f([1, 2, 3], [4, 5, 6]), g([1, 2, 3], [4, 5, 6]))


def test_a_copied_handler_knows_the_graph(x, y):
    with optimizing():
        fgraph = FunctionGraph([x, y], [OPS["destroy"](x, y), OPS["pure"](x, y)], clone=False)
        fgraph.attach_feature(DestroyHandler())
    copied = deepcopy(fgraph)
    assert type(copied.destroy_handler) is DestroyHandler
    destroyer, reader = (out.owner for out in copied.outputs)
    orderings = copied.destroy_handler.orderings(copied)
    assert {node: list(before) for node, before in orderings.items()} == {destroyer: [reader]}
    assert copied.has_destroyers([copied.inputs[0]]) and not copied.has_destroyers([copied.inputs[1]])
