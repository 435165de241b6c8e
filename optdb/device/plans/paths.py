"""Paths: the nodes that a call runs, which branch conditions select.

A plan is made for one path. A call finds its path in *rounds*: a round runs all nodes that are certainly needed and
have all their inputs, and then evaluates the available conditions, which select the next round. *Early* conditions
depend only on host inputs, and are evaluated before the first round.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from optdb.device.plans.linked import LinkedFunction, Node, ValueId


class Path:
    """The nodes that a call runs, in order."""

    def __init__(self, branches: Branches, rounds: tuple[Round, ...]) -> None:
        self._branches = branches
        self.rounds = rounds
        #: The nodes that the call runs, in order, with their numbers.
        self.steps = [(number, branches.nodes[number]) for round_ in rounds for number in round_.order]
        final = (index for index, (number, _) in enumerate(self.steps) if number in branches.final)
        #: The index of the first step that overwrites an input of the function; the number of steps if there is none.
        self.final = next(final, len(self.steps))
        starts = itertools.accumulate(len(round_.order) for round_ in rounds)
        #: For each round that ends with conditions: the index of the step after the round, and the round.
        self.guards = [(index, round_) for index, round_ in zip(starts, rounds) if round_.asked]

    def inputs_of(self, node: Node) -> Sequence[ValueId]:
        return self._branches.used(node, self.rounds[-1].state)


@dataclass(eq=False)
class Round:
    """The nodes that run between two evaluations of conditions."""

    #: The value of each condition; None if it has not been evaluated.
    state: tuple[bool | None, ...]
    order: tuple[int, ...]
    #: The conditions to evaluate after these nodes.
    asked: tuple[int, ...]
    #: The numbers of all nodes that have run by the end of the round.
    done: frozenset[int]
    #: Maps a node's number to the cells that are dead after the node.
    dead: dict[int, list[list[Any]]]
    prior: Round | None
    following: dict[tuple[bool, ...], Round] = field(default_factory=dict)
    path: Path | None = None

    @property
    def chain(self) -> tuple[Round, ...]:
        return (*(self.prior.chain if self.prior is not None else ()), self)


class Branches:
    """A function's conditions, and the paths that they select."""

    def __init__(self, graph: LinkedFunction) -> None:
        self._graph = graph
        self.nodes = nodes = graph.nodes
        self.final = graph.final
        self._inputs = set(graph.inputs)
        self._number = graph.producers
        choices = [node for node in nodes if node.chosen]
        self.conditions = list(dict.fromkeys(node.inputs[0] for node in choices))
        self._index = {condition: index for index, condition in enumerate(self.conditions)}
        self._users: dict[ValueId, list[int]] = {}
        for number, node in enumerate(nodes):
            for var in node.inputs:
                self._users.setdefault(var, []).append(number)
        cones = {index: self._early_cone(var) for index, var in enumerate(self.conditions)}
        #: Maps an early condition to the nodes that compute it.
        self._cones = {index: cone for index, cone in cones.items() if cone is not None}
        self._early: dict[tuple[bool | None, ...], tuple[int, ...]] = {}
        self._firsts: dict[tuple[bool | None, ...], Round] = {}

    def first(self, compute: Callable[[int], Any]) -> Round:
        """Evaluate a call's early conditions; return its first round. `compute` runs the node with a given number."""
        state: tuple[bool | None, ...] = (None,) * len(self.conditions)
        while True:
            if state not in self._early:
                pending = self._pending(state, self._reached(state))
                self._early[state] = tuple(index for index in pending if index in self._cones)
            asked = self._early[state]
            if not asked:
                break
            for number in sorted({number for index in asked for number in self._cones[index]}):
                compute(number)
            state = self._answered(state, asked)
        if state not in self._firsts:
            self._firsts[state] = self._round(state, None)
        return self._firsts[state]

    def next(self, done: Round) -> Round:
        """Evaluate the conditions at the end of a round; return the next round."""
        answers = self.answers(done)
        if answers not in done.following:
            done.following[answers] = self._round(self._answered(done.state, done.asked), done)
        return done.following[answers]

    def answers(self, done: Round) -> tuple[bool, ...]:
        return tuple(self._truth(index) for index in done.asked)

    def walk(self, compute: Callable[[int], Any], here: Round) -> Path:
        """Run the nodes of a call, starting with the first round `here`, and return the path.

        Dead cells are emptied. `compute` runs the node with a given number.
        """
        while True:
            for number in here.order:
                compute(number)
                for cell in here.dead.get(number, ()):
                    cell[0] = None
            if not here.asked:
                return self.path(here)
            here = self.next(here)

    def path(self, last: Round) -> Path:
        if last.path is None:
            last.path = Path(self, last.chain)
        return last.path

    def _truth(self, index: int) -> bool:
        return bool(np.all(np.asarray(self._graph.value(self.conditions[index])) != 0))

    def _answered(self, state: tuple[bool | None, ...], asked: Iterable[int]) -> tuple[bool | None, ...]:
        answers = {index: self._truth(index) for index in asked}
        return tuple(answers.get(index, value) for index, value in enumerate(state))

    def used(self, node: Node, state: tuple[bool | None, ...], certainly: bool = True) -> Sequence[ValueId]:
        """Return the inputs that a node may use under these conditions; with `certainly`, those that it must use."""
        if not node.chosen:
            return node.inputs
        truth = state[self._index[node.inputs[0]]]
        if truth is None:
            return node.inputs[:1] if certainly else node.inputs
        count = node.chosen
        return [node.inputs[0], *(node.inputs[1 : 1 + count] if truth else node.inputs[1 + count :])]

    def _reached(self, state: tuple[bool | None, ...], certainly: bool = True, more: Iterable[int] = ()) -> set[int]:
        """Return the numbers of the nodes on which the outputs and `more` depend, certainly or possibly."""
        if not self.conditions:  # some nodes may exist only for their side effects
            return set(range(len(self.nodes)))
        todo = [*(self._number[var] for var in self._graph.outputs if var in self._number), *more]
        reached = set(todo)
        while todo:
            for var in self.used(self.nodes[todo.pop()], state, certainly):
                number = self._number.get(var)
                if number is not None and number not in reached:
                    reached.add(number)
                    todo.append(number)
        return reached

    def _pending(self, state: tuple[bool | None, ...], nodes: Iterable[int]) -> list[int]:
        """Return the nodes' conditions that have not been evaluated."""
        choices = (node for number in sorted(nodes) if (node := self.nodes[number]).chosen)
        needed = dict.fromkeys(self._index[node.inputs[0]] for node in choices)
        return [index for index in needed if state[index] is None]

    def _early_cone(self, condition: ValueId) -> list[int] | None:
        """Return the nodes that compute a condition from host inputs alone; None if it needs other nodes."""
        cone: set[int] = set()
        todo = [condition]
        while todo:
            var = todo.pop()
            if var not in self._number:
                if self._graph.on_device(var):
                    return None
                continue
            number = self._number[var]
            node = self.nodes[number]
            if node.chosen or node.is_inplace or any(map(self._graph.on_device, node.outputs)):
                return None
            cone.add(number)
            needs_shape_only = node.reads_shapes and node.inputs[0] in self._inputs
            todo.extend(() if needs_shape_only else node.inputs)
        return sorted(cone)

    def _round(self, state: tuple[bool | None, ...], prior: Round | None) -> Round:
        done = set() if prior is None else set(prior.done)
        possible = self._reached(state, certainly=False)
        forced: set[int] = set()
        order: list[int] = []
        while True:
            needed = self._reached(state, more=forced)
            pending = self._pending(state, needed)
            new = self._ready(needed, possible, done, state, not pending)
            asked = self._askable(pending, done)
            if not new and not asked:
                # A node that overwrites an input waits for all conditions that do not depend on it.
                new = self._ready(needed, possible, done, state, True)
                asked = self._askable(pending, done)
            order += new
            if asked or not needed - done:
                break
            if not new:
                forced |= {
                    before for number in needed - done for before in self._before(number) if before in possible
                } - done
        dead = self._dead(order, done, possible) if self._graph.frees else {}
        return Round(state, tuple(order), tuple(asked), frozenset(done), dead, prior)

    def _before(self, number: int) -> Sequence[int]:
        return self._graph.before.get(number, ())

    def _askable(self, pending: Iterable[int], done: set[int]) -> list[int]:
        """Return the pending conditions whose values are available."""
        producers = ((index, self._number.get(self.conditions[index])) for index in pending)
        return [index for index, producer in producers if producer is None or producer in done]

    def _ready(
        self, needed: set[int], possible: set[int], done: set[int], state: tuple[bool | None, ...], with_final: bool
    ) -> list[int]:
        """Return the nodes that can run in this round, and add them to `done`."""
        ready = []
        for number in sorted(needed - done):
            node = self.nodes[number]
            used = self.used(node, state)
            if (node.chosen and len(used) == 1) or (number in self.final and not with_final):
                continue
            inputs_done = all(var not in self._number or self._number[var] in done for var in used)
            if inputs_done and all(prior in done or prior not in possible for prior in self._before(number)):
                done.add(number)
                ready.append(number)
        return ready

    def _dead(self, order: Sequence[int], done: set[int], possible: set[int]) -> dict[int, list[list[Any]]]:
        """Return the cells that are dead after each node of a round."""
        dead: dict[int, list[list[Any]]] = {}
        outputs = set(self._graph.outputs)
        seen: set[ValueId] = set()
        ahead = possible - done
        for number in reversed(order):
            node = self.nodes[number]
            for var in (*node.inputs, *node.outputs):
                if var in seen or var not in self._number or var in outputs:
                    continue
                if self._number[var] in done and ahead.isdisjoint(self._users.get(var, ())):
                    dead.setdefault(number, []).append(self._graph.cells[var])
                seen.add(var)
        return dead
