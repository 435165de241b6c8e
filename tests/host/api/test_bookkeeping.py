"""The leaner FunctionGraph has the same graphs, events and errors as Theano's."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import nullcontext

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.gof import FunctionGraph, InconsistencyError
from theano.gof.destroyhandler import DestroyHandler
from theano.gof.fg import MissingInputError
from theano.gof.graph import io_toposort
from theano.gof.toolbox import Feature, ReplaceValidate
from theano.tensor.elemwise import Elemwise

from optdb.host.api import bookkeeping
from optdb.host.api.session import optimizing
from tests.effort import examples
from tests.processes import run_code


class Log:
    """A feature that records the events that it receives."""

    def __init__(self):
        self.events = []

    def on_import(self, fgraph, node, reason):
        self.events.append(("import", str(node.op), str(reason)))
        # before this event, the node's inputs are in the graph, and the node is among their clients
        assert all(var in fgraph.variables and (node, i) in var.clients for i, var in enumerate(node.inputs))

    def on_prune(self, fgraph, node, reason):
        self.events.append(("prune", str(node.op), str(reason)))

    def on_change_input(self, fgraph, node, i, old, new, reason=None):
        where = node if isinstance(node, str) else str(node.op)
        self.events.append(("change", where, i, str(reason)))


def clients_of(fgraph):
    """Return the clients of each variable, in order; a node is given by its position in the sorted graph."""
    number = {node: k for k, node in enumerate(fgraph.toposort())}

    def index_of(client):
        return client if isinstance(client, str) else number[client]

    return [
        [[(index_of(client), i) for client, i in var.clients] for var in node.outputs] for node in fgraph.toposort()
    ] + [[(index_of(client), i) for client, i in var.clients] for var in fgraph.inputs]


def play(steps):
    """Apply replacements to a new graph; return everything that can be observed about the graph."""
    x, y = tt.dvector("x"), tt.dvector("y")
    fgraph = FunctionGraph([x, y], [x, y, tt.exp(x + y), tt.sin(x + y)], clone=True)
    fgraph.attach_feature(ReplaceValidate())
    log = Log()
    fgraph.attach_feature(log)
    for a, b, kind in steps:
        variables = [*fgraph.inputs, *(var for node in fgraph.toposort() for var in node.outputs)]
        old, base = variables[a % len(variables)], variables[b % len(variables)]
        if old.owner is None or old in theano.gof.graph.ancestors([base]):
            continue
        new = [base, tt.exp(base), tt.cos(tt.exp(base)), base + tt.sin(variables[0])][kind]
        fgraph.replace_all_validate([(old, new)], reason=f"step {kind}")
        fgraph.check_integrity()
    ops = [(str(node.op), [str(t) for t in node.tag.imported_by]) for node in fgraph.toposort()]
    return ops, clients_of(fgraph), log.events


@pytest.mark.slow
@settings(max_examples=examples(80))
@given(st.lists(st.tuples(st.integers(0), st.integers(0), st.integers(0, 3)), max_size=8))
def test_the_same_graph_clients_and_events(steps):
    stock = play(steps)
    with optimizing():
        ours = play(steps)
    assert ours == stock


def both():
    """Run the body with Theano's bookkeeping, then with optdb's."""
    yield "stock"
    with optimizing():
        yield "ours"


@pytest.mark.parametrize("where", ["the variable itself", "deep below"])
def test_a_missing_input_is_named(where):
    errors = []
    for _ in both():
        x, nobody = tt.dvector("x"), tt.dvector("nobody gave this")
        fgraph = FunctionGraph([x], [tt.exp(x)], clone=False)
        new = nobody if where == "the variable itself" else tt.sin(tt.cos(nobody) + x)
        with pytest.raises(MissingInputError) as error:
            fgraph.replace(fgraph.outputs[0], new)
        errors.append(str(error.value).split("Backtrace")[0])
    assert errors[0] == errors[1]
    assert "nobody gave this" in errors[0] or "Undeclared input" in errors[0]


def test_a_graph_without_its_input_cannot_be_made():
    for _ in both():
        with pytest.raises(MissingInputError, match=r"Input 0 of the graph .* used to compute .*exp"):
            FunctionGraph([], [tt.exp(tt.dvector("x"))], clone=False)


def test_a_node_belongs_to_one_graph():
    for _ in both():
        x = tt.dvector("x")
        used = tt.exp(x)
        first = FunctionGraph([x], [used], clone=False)
        y = tt.dvector("y")
        second = FunctionGraph([y], [tt.sin(y)], clone=False)
        with pytest.raises(Exception, match="already owned by another fgraph"):
            second.replace(second.outputs[0], tt.cos(used))
        assert used in first.variables
        with pytest.raises(Exception, match="already owned by another fgraph"):
            FunctionGraph([x], [tt.exp(x)], clone=False)


def test_a_deep_graph_is_imported():
    """The graph is deeper than Python's stack."""
    x = tt.dvector("x")
    y = x
    for _ in range(3000):
        y = tt.exp(y)
    with optimizing():
        fgraph = FunctionGraph([x], [y], clone=False)
    assert len(fgraph.apply_nodes) == 3000
    assert len(fgraph.toposort()) == 3000


def test_features_hear_in_the_order_they_came():
    heard = []

    class Says(Feature):
        def __init__(self, name):
            self.name = name

        def on_change_input(self, *args, **kwargs):
            heard.append(self.name)

    x = tt.dvector("x")
    with optimizing():
        fgraph = FunctionGraph([x], [tt.sin(tt.exp(x))], clone=True)
        first, second = Says("first"), Says("second")
        fgraph.attach_feature(second)
        fgraph.attach_feature(first)
        fgraph.replace(fgraph.outputs[0].owner.inputs[0], tt.cos(fgraph.inputs[0]))
        assert heard == ["second", "first"]
        fgraph.remove_feature(second)
        fgraph.replace(fgraph.outputs[0].owner.inputs[0], tt.exp(fgraph.inputs[0]))
        assert heard == ["second", "first", "first"]
        fgraph.attach_feature(second)
        fgraph.replace(fgraph.outputs[0].owner.inputs[0], tt.cos(fgraph.inputs[0]))
        assert heard[3:] == ["first", "second"]


def test_a_feature_without_a_base_class_takes_part():
    """A feature needs no base class: Theano looks up callbacks as attributes, and skips features without callbacks."""

    class Bare:
        heard = 0

        def on_import(self, fgraph, node, reason):
            self.heard += 1

    x = tt.dvector("x")
    with optimizing():
        fgraph = FunctionGraph([x], [tt.exp(x)], clone=True)
        bare = Bare()
        fgraph.attach_feature(bare)
        fgraph.replace(fgraph.outputs[0], tt.sin(fgraph.inputs[0]))
        assert bare.heard == 1


def test_a_features_error_goes_through():
    class Never(Feature):
        def validate(self, fgraph):
            raise InconsistencyError("never")

    x = tt.dvector("x")
    with optimizing():
        fgraph = FunctionGraph([x], [tt.exp(x)], clone=True)
        fgraph.attach_feature(ReplaceValidate())
        fgraph.attach_feature(Never())
        with pytest.raises(InconsistencyError, match="never"):
            fgraph.replace_validate(fgraph.outputs[0], tt.sin(fgraph.inputs[0]))
        fgraph.check_integrity()
        assert [node.op for node in fgraph.apply_nodes] == [tt.exp]


def test_who_validates_says_whether_a_failure_is_printed(capsys):
    class Never(Feature):
        def validate(self, fgraph):
            raise InconsistencyError("never")

    def check(fgraph, r, verbose):
        fgraph.validate()

    def printed():
        fgraph = FunctionGraph([x], [tt.exp(x)], clone=True)
        fgraph.attach_feature(ReplaceValidate())
        fgraph.attach_feature(Never())
        for verbose in (False, True):
            with pytest.raises(InconsistencyError):
                check(fgraph, r="this", verbose=verbose)
        return capsys.readouterr().out

    x = tt.dvector("x")
    stock = printed()
    with optimizing():
        assert printed() == stock == "validate failed on node this.\n Reason: check, never\n"


def test_a_profile_gets_the_time_of_each_feature():
    x = tt.dvector("x")
    with optimizing():
        fgraph = FunctionGraph([x], [tt.exp(x)], clone=True)
        log = Log()
        fgraph.attach_feature(log)
        fgraph.profile = theano.compile.ProfileStats(atexit_print=False)
        before = fgraph.execute_callbacks_time
        fgraph.replace(fgraph.outputs[0], tt.sin(fgraph.inputs[0]))
        assert fgraph.execute_callbacks_times[log] > 0
        assert fgraph.execute_callbacks_time > before
        before = fgraph.profile.validate_time
        fgraph.attach_feature(ReplaceValidate())
        fgraph.validate()
        assert fgraph.profile.validate_time > before


def test_nothing_is_patched_outside():
    names = ("execute_callbacks", "__import__")
    stock = [vars(FunctionGraph)[name] for name in names]
    with optimizing():
        assert all(vars(FunctionGraph)[name] is not method for name, method in zip(names, stock, strict=True))
    assert [vars(FunctionGraph)[name] for name in names] == stock


KEPT = """
import gc
import weakref
import optdb
import theano.tensor as tt
from theano.gof import FunctionGraph
from theano.gof.toolbox import ReplaceValidate
from optdb.host.api import bookkeeping
from optdb.host.api.session import optimizing

x = tt.dvector("x")
with optimizing():
    fgraph = FunctionGraph([x], [tt.exp(x)], clone=True)
    fgraph.attach_feature(ReplaceValidate())
    fgraph.replace(fgraph.outputs[0], tt.sin(fgraph.inputs[0]))
    assert fgraph in bookkeeping._watched
gone = weakref.ref(fgraph)
del fgraph
gc.collect()
assert gone() is None
"""


@pytest.mark.slow
def test_a_graph_is_not_kept_by_what_is_remembered_of_it():
    # Use a separate process, because other tests may keep objects alive.
    done = run_code(KEPT)
    assert done.returncode == 0, done.stderr


def test_values_are_the_same():
    x = tt.dmatrix("x")
    y = tt.nnet.softmax(x).sum(axis=0) * tt.exp(-x.max())
    f = theano.function([x], y, mode=theano.Mode("py", "fast_run"))
    with optimizing():
        g = theano.function([x], y, mode=theano.Mode("py", "fast_run"))
    value = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(f(value), g(value), rtol=1e-14)
    assert len(f.maker.fgraph.apply_nodes) == len(g.maker.fgraph.apply_nodes)


def chain(length=4):
    x = tt.dvector("x")
    out = x
    for _ in range(length):
        out = tt.exp(out)
    return FunctionGraph([x], [out], clone=False)


def test_a_kept_order_is_taken_for_the_sorted_one():
    """A query returns the kept order while it is known; afterwards, each query sorts the graph."""
    fgraph = chain()
    in_order = fgraph.toposort()
    answers = [None]
    with optimizing():
        with bookkeeping.kept_order(fgraph, lambda: answers[0]):
            answers[0] = ["kept"]
            assert fgraph.toposort() == ["kept"]
            answers[0] = None
            assert fgraph.toposort() == in_order
            answers[0] = ["outer"]
            with bookkeeping.kept_order(fgraph, lambda: ["inner"]):
                assert fgraph.toposort() == ["inner"]
            assert fgraph.toposort() == ["outer"]
        assert fgraph.toposort() == in_order


def test_a_kept_order_knows_nothing_of_a_feature_s_orderings():
    class Backwards:
        """A feature that makes `first` wait for `second`, although data flow does not order these nodes."""

        def orderings(self, fgraph):
            return OrderedDict([(first, [second])])

    x = tt.dvector("x")
    fgraph = FunctionGraph([x], [tt.exp(x), tt.sin(x)], clone=False)
    first, second = fgraph.toposort()
    fgraph.attach_feature(Backwards())
    with optimizing(), bookkeeping.kept_order(fgraph, lambda: [first, second]):
        assert fgraph.toposort() == [second, first]


def test_a_kept_order_knows_nothing_of_theano_s_destroy_handler():
    x = tt.dvector("x")
    overwriting = Elemwise(theano.scalar.Exp(theano.scalar.transfer_type(0)), {0: 0})
    fgraph = FunctionGraph([x], [overwriting(x), tt.sin(x)], clone=False)
    fgraph.attach_feature(DestroyHandler())
    last, first = (out.owner for out in fgraph.outputs)
    with optimizing(), bookkeeping.kept_order(fgraph, lambda: [last, first]):
        assert fgraph.toposort() == [first, last]


def test_what_is_remembered_is_that_of_the_graph_as_it_is():
    """The cached order stays correct after imports, exchanges, removals and a reverted replacement."""
    fgraph = chain()
    fgraph.attach_feature(ReplaceValidate())

    def is_sorted():
        order = bookkeeping.order_by_data(fgraph)
        order_again = fgraph.toposort()
        assert order == order_again == io_toposort(fgraph.inputs, fgraph.outputs)
        assert order is not order_again, "callers change the list that they get"
        by_op = bookkeeping.nodes_by_op(fgraph)
        assert {node for nodes_of in by_op.values() for nodes in nodes_of.values() for node in nodes} == set(order)
        assert all(
            type(node.op) is cls and id(node.op) == op_id
            for cls, nodes_of in by_op.items()
            for op_id, nodes in nodes_of.items()
            for node in nodes
        )

    with optimizing():
        is_sorted()
        old = fgraph.outputs[0].owner.inputs[0]
        fgraph.replace_validate(old, tt.sin(old.owner.inputs[0]))
        is_sorted()
        outer = fgraph.outputs[0]
        with pytest.raises(MissingInputError):
            fgraph.replace_validate(outer, outer + tt.dvector("missing"))
        bookkeeping.reconnect(fgraph, [outer])
        is_sorted()
        fgraph.replace_validate(outer, outer.owner.inputs[0])
        is_sorted()
        fgraph.profile = theano.compile.profiling.ProfileStats(atexit_print=False)
        fgraph.replace_validate(fgraph.outputs[0], tt.cos(fgraph.outputs[0].owner.inputs[0]))
        is_sorted()
    fgraph.profile = None
    fgraph.replace_validate(fgraph.outputs[0], fgraph.outputs[0].owner.inputs[0])
    is_sorted()
    with optimizing():
        is_sorted()


@pytest.mark.parametrize("inside", [nullcontext, optimizing])
def test_wrong_changes_raise_and_change_nothing(inside):
    fgraph = chain()
    node = fgraph.outputs[0].owner
    operand, stranger = node.inputs[0], tt.exp(tt.dvector("y"))
    with inside():
        with pytest.raises(TypeError, match="same as the type"):
            fgraph.change_input(node, 0, tt.iscalar())
        with pytest.raises(TypeError, match="same as the type"):
            fgraph.change_input("output", 0, tt.iscalar())
        with pytest.raises(Exception, match="must be the same"):
            fgraph.replace(operand, tt.iscalar(), reason="test")
        FunctionGraph([stranger.owner.inputs[0]], [stranger], clone=False)
        with pytest.raises(Exception, match="does not belong"):
            fgraph.change_input(stranger.owner, 0, stranger)
        with pytest.raises(Exception, match="does not belong"):
            fgraph.replace(stranger, operand)
        with pytest.raises(ValueError):
            fgraph.__remove_client__(operand, (node, 1))
        fgraph.replace(tt.dvector("elsewhere"), operand)
        fgraph.change_input(node, 0, operand)
    assert node.inputs == [operand]
    fgraph.check_integrity()


def test_a_pruned_node_with_two_outputs_goes_with_the_last_of_them():
    x = tt.dvector("x")
    highest, where = tt.max_and_argmax(x)
    fgraph = FunctionGraph([x], [highest, where, tt.exp(x)], clone=False)
    with optimizing():
        fgraph.replace(highest, tt.sum(x), reason="test")
        assert where.owner in fgraph.apply_nodes
        fgraph.change_input("output", 1, tt.argmin(x), reason="test")
        assert where.owner not in fgraph.apply_nodes
    fgraph.check_integrity()
    assert where.owner.tag.removed_by == ["test"]
