"""In small graphs, optdb finds which variables may share memory."""

from __future__ import annotations

import itertools

import pytest
import theano
import theano.tensor as tt
from theano.gof.graph import io_toposort

import optdb  # noqa: F401  comes before theano
from optdb.opencl.aliasing import (
    AliasSets,
    may_lie_in,
    memory_of,
    overwriting,
    view_root,
)


class Toy(theano.Op):
    """An op with two outputs; each one is new, a view of an input, or computed in the memory of an input."""

    __props__ = ("views", "overwrites")

    def __init__(self, views=(), overwrites=()):
        self.views, self.overwrites = tuple(views), tuple(overwrites)
        self.view_map = {out: [slot] for out, slot in self.views}
        self.destroy_map = {out: [slot] for out, slot in self.overwrites}

    def make_node(self, *inputs):
        return theano.Apply(self, list(inputs), [inputs[0].type(), inputs[0].type()])


NEW, VIEW, OVER = Toy(), Toy(views=[(0, 0)]), Toy(overwrites=[(0, 0)])
BOTH = Toy(views=[(0, 1)], overwrites=[(1, 0)])


def vectors(count):
    return [tt.fvector(f"x{number}") for number in range(count)]


def nodes_of(*outputs):
    return io_toposort([], outputs)


def test_memory_of_a_variable():
    x, y = vectors(2)
    assert memory_of(x) == []
    assert memory_of(NEW(x, y)[0]) == []
    assert memory_of(VIEW(x, y)[0]) == [x]
    assert memory_of(VIEW(x, y)[1]) == []
    view, over = BOTH(x, y)
    assert (memory_of(view), memory_of(over)) == ([y], [x])


def test_a_value_may_lie_in_what_views_and_in_place_nodes_lead_to():
    x, y = vectors(2)
    view = VIEW(x, y)[0]
    over = OVER(view, y)[0]
    again = VIEW(over, y)[0]
    assert may_lie_in(again) == {again, over, view, x}
    new = NEW(again, y)[0]
    assert may_lie_in(new) == {new}
    assert may_lie_in(new, view) == {new, view, x}
    assert may_lie_in() == set()


def test_the_root_of_views_is_not_what_a_node_has_overwritten():
    x, y = vectors(2)
    over = OVER(VIEW(x, y)[0], y)[0]
    assert view_root(x) is x
    assert view_root(VIEW(VIEW(x, y)[0], y)[0]) is x
    assert view_root(VIEW(over, y)[0]) is over
    assert view_root(VIEW(x, y)[1]).owner is not None


def test_nodes_that_overwrite_protected_variables_by_way_of_views_alone():
    x, y, z = vectors(3)
    view = VIEW(x, y)[0]
    over = OVER(view, y)[0]
    again = OVER(over, y)[0]
    of_new = OVER(NEW(x, y)[0], y)[0]
    order = nodes_of(again, of_new, OVER(z, y)[0])
    assert overwriting(order, [x]) == [over.owner]
    assert [node.inputs[0] for node in overwriting(order, [x, z])] in ([view, z], [z, view])
    assert overwriting(order, [y]) == []
    assert overwriting(order, []) == []


def test_alias_sets():
    x, y, z = vectors(3)
    view, over = BOTH(x, y)
    next_view = VIEW(over, z)[0]
    alone = NEW(next_view, view)[0]
    sets = AliasSets(nodes_of(alone))
    assert sets.of([x]) == sets.of([next_view]) == {x, over, next_view}
    assert sets.of([y]) == {y, view}
    assert sets.of([alone]) == {alone}
    assert sets.of([alone, y]) == {alone, y, view}
    assert sets.overwritten == {x}
    for one, other in itertools.product([x, over, next_view], [y, view, z, alone]):
        assert other not in sets.of([one]) and one not in sets.of([other])
    assert next_view in sets.of([x]) and x in sets.of([next_view]) and z in sets.of([z])


def test_alias_sets_of_nodes_that_do_not_work_in_place_as_they_are_computed():
    x, y = vectors(2)
    view, over = BOTH(x, y)
    sets = AliasSets(nodes_of(view, over), overwrites=lambda node: False)
    assert sets.of([x]) == {x}
    assert sets.of([y]) == {y, view}
    assert not sets.overwritten


def test_views_of_several_inputs_are_refused():
    x, y = vectors(2)
    several = Toy()
    several.view_map = {0: [0, 1]}
    with pytest.raises(NotImplementedError):
        AliasSets([several(x, y)[0].owner])
