"""Nodes are ordered so that the host waits late and the device has work while the host waits."""

from __future__ import annotations

import random

from optdb.host.api.graph import Apply, Op
from optdb.host.theano.functions.originals import tensor
from optdb.opencl.linking.waiting import has_waits, waits_late


class Named(Op):
    __props__ = ("name",)

    def __init__(self, name, **waits):
        self.name = name
        vars(self).update(waits)

    def make_node(self, *inputs):
        return Apply(self, list(inputs), [tensor.dvector()])


def node(name, *priors, **waits):
    return Named(name, **waits).make_node(*(prior.outputs[0] for prior in priors))


def begin(name, *priors):
    return node(name, *priors, begins_wait=True)


def end(name, *priors):
    return node(name, *priors, ends_wait=True)


def copy(name, *priors):
    return node(name, *priors, begins_copy=True)


def prior(node):
    return [var.owner for var in node.inputs if var.owner is not None]


def order(*nodes):
    return [each.op.name for each in waits_late(nodes, prior)]


def backward():
    """Return the nodes of a backward pass; in each layer, the host waits for sums before two gradients are computed."""
    nodes = [node("loss")]
    for layer in "cba":
        begun = begin(f"begin {layer}", nodes[-1] if layer == "c" else nodes[-2])
        ended = end(f"end {layer}", begun)
        nodes += [begun, ended, node(f"inputs {layer}", ended), node(f"weights {layer}", ended)]
    return nodes


def test_gradients_of_weights_are_computed_while_the_host_waits():
    assert order(*backward()) == [
        *("loss", "begin c", "end c", "inputs c", "begin b", "weights c", "end b", "inputs b", "begin a", "weights b"),
        *("end a", "inputs a", "weights a"),
    ]


def test_what_leads_to_the_next_wait_goes_first():
    a, b = node("a"), node("b")
    begun = begin("begin", b)
    assert order(a, b, begun, end("end", begun)) == ["b", "begin", "a", "end"]


def test_what_leads_to_a_copy_goes_before_others_and_after_what_leads_to_a_wait():
    other, a, b = node("other"), node("a"), node("b")
    copied, begun = copy("copy", a), begin("begin", b)
    nodes = other, a, copied, b, begun, end("end", begun)
    assert order(*nodes) == ["b", "begin", "a", "copy", "other", "end"]
    assert order(other, a, copied) == ["a", "copy", "other"]
    assert has_waits([copied])


def test_copies_begin_in_their_order():
    nodes = [node(name) for name in "abc"]
    first = copy("first", nodes[2])
    second = copy("second", nodes[0], first)
    assert order(*nodes, first, second) == ["c", "first", "a", "second", "b"]


def test_the_order_stays_where_nothing_speaks_against_it():
    nodes = [node(str(number)) for number in range(5)]
    assert not has_waits(nodes)
    assert order(*nodes) == list("01234")


def test_all_nodes_come_after_those_that_they_need():
    rng = random.Random(0)
    for _ in range(200):
        nodes = []
        for number in range(rng.randrange(1, 25)):
            make = rng.choice([node, node, node, begin, end, copy])
            nodes.append(make(str(number), *rng.sample(nodes, rng.randrange(min(len(nodes), 3) + 1))))
        found = waits_late(nodes, prior)
        place = {each: number for number, each in enumerate(found)}
        assert sorted(place.values()) == list(range(len(nodes))) and set(place) == set(nodes)
        assert all(place[before] < place[each] for each in nodes for before in prior(each))
