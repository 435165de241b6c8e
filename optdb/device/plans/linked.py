"""A compiled function that a front end passes to plans: nodes with their compute functions, and cells for values.

A call runs all nodes, or only the nodes that its branch conditions select; these nodes are the call's path, and each
plan is made for one path. A call finds its path in *rounds*: a round runs all nodes that are certainly needed and have
all their inputs, and ends by evaluating the available conditions, which select the next round. *Early* conditions
depend only on host inputs, and are evaluated before the first round.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from optdb.runtime.arrays import Array
from optdb.runtime.context import Context
from optdb.runtime.recording import ArrayLayout

#: Identifies a value in a function: any hashable object from the front end, such as a variable in the host's graph.
ValueId = Hashable


@dataclass(eq=False)
class Node:
    """One computation in a function; with default attributes, it runs in Python in every call."""

    #: The node of the host's graph, for the front end.
    origin: Any
    inputs: Sequence[ValueId]
    outputs: Sequence[ValueId]
    #: Computes the outputs from the inputs; inputs and outputs are in cells (one-element lists).
    compute: Callable[[], Any]
    #: The number of outputs if the node chooses between two branches, otherwise 0. The inputs are the condition, then
    #: the values to return if it is true, then the values to return if it is false.
    chosen: int = 0
    #: Whether the node reads only the shapes of its inputs, and computes host values.
    reads_shapes: bool = False
    #: Whether all commands that the node enqueues can be recorded, and enqueued again in later calls.
    is_repeatable: bool = False
    #: Whether the node may enqueue commands that a recorder does not see.
    is_foreign: bool = False
    #: Whether the node computes host values from its inputs alone, so that it may run at any time.
    is_pure: bool = False
    is_inplace: bool = False
    #: Maps an output to the inputs that may share its memory because the node reads each element before overwriting it.
    overwritable: Mapping[ValueId, Set[ValueId]] = field(default_factory=dict)
    #: Whether the node is a loop; a loop's steps release the memory that they allocate.
    is_loop: bool = False
    #: Whether the node's kernels read host values only through lookup tables (`NodeTable`).
    reads_tables_alone: bool = False
    #: Outputs that are views with offsets that may depend on host values; copies may replace these views.
    copyable_views: Sequence[ValueId] = ()


class Path:
    """The nodes that a call runs, in order."""

    def __init__(self, branches: Branches, rounds: tuple[Round, ...]) -> None:
        self._branches = branches
        self.rounds = rounds
        #: The nodes that the call runs, in order, with their numbers.
        self.steps = [(number, branches.nodes[number]) for round_ in rounds for number in round_.order]
        final = (index for index, (number, _) in enumerate(self.steps) if number in branches.final)
        #: Index of the first step that overwrites an input of the function; the number of steps if no step does.
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
    #: The conditions to evaluate after the round's nodes.
    asked: tuple[int, ...]
    #: The numbers of all nodes that have run by the end of the round.
    done: frozenset[int]
    #: Maps a node's number to the cells whose values are dead after the node.
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
        #: Maps the number of a condition on host inputs to the nodes that compute the condition.
        self._cones = {index: cone for index, cone in cones.items() if cone is not None}
        #: Maps the values of the conditions that are already known in a call to the conditions to evaluate next. If no
        #: other condition can be evaluated before the first round, the mapped value is the first round.
        self._firsts: dict[tuple[bool | None, ...], tuple[int, ...] | Round] = {}

    def first(self, compute: Callable[[int], Any]) -> Round:
        """Evaluate the conditions that depend only on host inputs; return the call's first round.

        `compute` runs the node with a given number.
        """
        state: tuple[bool | None, ...] = (None,) * len(self.conditions)
        while True:
            if state not in self._firsts:
                pending = self._pending(state, self._reached(state))
                early = tuple(index for index in pending if index in self._cones)
                self._firsts[state] = early or self._round(state, None)
            asked = self._firsts[state]
            if isinstance(asked, Round):
                return asked
            for number in sorted({number for index in asked for number in self._cones[index]}):
                compute(number)
            state = self._answered(state, asked)

    def next(self, done: Round) -> Round:
        """Evaluate the conditions at the end of a round; return the next round."""
        answers = self.answers(done)
        if answers not in done.following:
            done.following[answers] = self._round(self._answered(done.state, done.asked), done)
        return done.following[answers]

    def answers(self, done: Round) -> tuple[bool, ...]:
        return tuple(self._truth(index) for index in done.asked)

    def walk(self, compute: Callable[[int], Any], here: Round) -> Path:
        """Run a call's nodes from its first round `here` on; empty each cell whose value is dead; return the path."""
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
        """Return the inputs that a node uses under the known conditions or, unless `certainly` is set, may use."""
        if not node.chosen:
            return node.inputs
        truth = state[self._index[node.inputs[0]]]
        if truth is None:
            return node.inputs[:1] if certainly else node.inputs
        count = node.chosen
        return [node.inputs[0], *(node.inputs[1 : 1 + count] if truth else node.inputs[1 + count :])]

    def _reached(self, state: tuple[bool | None, ...], certainly: bool = True, more: Iterable[int] = ()) -> set[int]:
        """Return the numbers of the nodes that the outputs and `more` need or, unless `certainly` is set, may need."""
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
        choices = (node for number in sorted(nodes) if (node := self.nodes[number]).chosen)
        needed = dict.fromkeys(self._index[node.inputs[0]] for node in choices)
        return [index for index in needed if state[index] is None]

    def _early_cone(self, condition: ValueId) -> list[int] | None:
        """Return, in order, the nodes that compute a condition from host inputs alone; None if that is not possible."""
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
                # A node that overwrites an input waits for all conditions, except conditions that depend on the node.
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
        """For each node of a round, return the cells whose values are dead after the node."""
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


class PlanOptions(NamedTuple):
    """The user's options for plans; the flags ``optdb.*`` document them."""

    merge_launches: str = "auto"
    persistent_launches: str = "auto"
    #: The fraction of a device's memory that a function may use.
    device_memory_fraction: float = 1.0


@dataclass(frozen=True)
class Roles:
    """The roles of a function's nodes.

    A node always runs if it moves device values to the host, computes a host value that the plan does not own, or runs
    commands that cannot be recorded. **A plan owns a host value only if no variable in its alias class is visible
    outside the nodes that read the value**, so that no other code can overwrite the value or empty its cell.
    """

    #: The nodes that depend on host values that may change, and all nodes that always run.
    value_dependent: frozenset[Node]
    #: The nodes that run in Python in each call.
    always_recompute: frozenset[Node]


def _find_roles(
    graph: LinkedFunction, steps: Iterable[tuple[Node, Sequence[ValueId]]], unrepeatable: Collection[Node]
) -> Roles:
    inputs = set(graph.inputs)
    changing = {var for var in inputs if not graph.on_device(var)}
    value_dependent: set[Node] = set()
    always_recompute: set[Node] = set()
    for node, used in steps:
        if node in unrepeatable or _always_recomputes(graph, node):
            always_recompute.add(node)
        elif changing.isdisjoint(_guarded(graph, node, inputs, used)):
            continue
        value_dependent.add(node)
        changing.update(node.outputs)
    return Roles(frozenset(value_dependent), frozenset(always_recompute))


def _guarded(graph: LinkedFunction, node: Node, given: set[ValueId], used: Sequence[ValueId]) -> list[ValueId]:
    """Return the inputs to guard: all except conditions, constants, and inputs that are read only for their shapes."""
    if node.reads_shapes:
        return [var for var in used if var not in given]
    return [var for var in used[bool(node.chosen) :] if var not in graph.constants]


def _always_recomputes(graph: LinkedFunction, node: Node) -> bool:
    on_host = [var for var in node.outputs if not graph.on_device(var)]
    if not graph.exposed.isdisjoint(on_host):
        return True
    if on_host and not node.reads_shapes and any(map(graph.on_device, node.inputs)):
        return True
    return graph.touches_device(node) and not node.is_repeatable


def _nothing(_: Any) -> Collection[Any]:
    return ()


@dataclass(eq=False, repr=False)
class LinkedFunction:
    """A compiled function: its nodes in execution order, the cells of its values, its updates, and its options."""

    nodes: list[Node]
    #: Maps a value to its cell: a list of one element.
    cells: Mapping[ValueId, list[Any]]
    inputs: list[ValueId]
    outputs: list[ValueId]
    #: Maps a device value to its context; all other values are on the host.
    contexts: Mapping[ValueId, Context]
    constants: Set[ValueId] = frozenset()
    #: The values whose memory is visible outside of the nodes, and values that a node overwrites.
    exposed: Set[ValueId] = frozenset()
    #: The values that a node may overwrite, and the values that may share memory with them.
    overwritten: Set[ValueId] = frozenset()
    #: The numbers of the nodes that overwrite inputs of the function.
    final: frozenset[int] = frozenset()
    #: Maps the number of a node that overwrites values to the readers of these values, which must run before the node.
    before: Mapping[int, Sequence[int]] = field(default_factory=dict)
    #: Whether a call empties each cell as soon as its value is dead.
    frees: bool = True
    #: Maps an input to the output that is its next value.
    updates: dict[ValueId, ValueId] = field(default_factory=dict)
    #: Cells to empty before a call, because the caller may have views of their values.
    clear_before: list[list[Any]] = field(default_factory=list)
    #: Device inputs that, if large, may have a different buffer in each call. Each of these inputs is C-contiguous,
    #: fills its own buffer, and is not overwritten.
    rebindable_inputs: frozenset[ValueId] = frozenset()
    #: Maps a device output to a function that selects the output's buffer in each call: the function maps the value's
    #: layout to a buffer, or to None for the buffer that the plan chooses.
    external_outputs: dict[ValueId, Callable[[ArrayLayout], Any]] = field(default_factory=dict)
    #: Device inputs whose current values are never read, so that their next values may be written early (``plan``).
    scratch: frozenset[ValueId] = frozenset()
    #: Whether plans merge small launches in their first run, because other devices wait for this function's calls.
    merges_at_once: bool = False
    #: Whether a call with the same inputs as the last call only enqueues the last call's commands.
    repeats_commands: bool = False
    options: Callable[[], PlanOptions] = PlanOptions
    #: Maps an input to a check that raises ValueError if its next value has a wrong length.
    next_value_checks: Mapping[ValueId, Callable[[Any], None]] = field(default_factory=dict)
    #: Returns the host values that are recomputed in each call and may share memory with a given output.
    aliases: Callable[[ValueId], Collection[ValueId]] = _nothing
    #: Describes a value with a given layout, for error messages.
    describe: Callable[[ValueId, ArrayLayout], str] = lambda _, layout: f"{layout.dtype} {layout.shape}"
    #: Called with the number of a node that raised an error; may raise a more informative error.
    explain: Callable[[int], Any] = _nothing
    _roles: dict[tuple[Path, frozenset[Node]], Roles] = field(init=False, default_factory=dict)

    @functools.cached_property
    def producers(self) -> dict[ValueId, int]:
        """Maps a value to the number of the node that computes it; all other values are inputs and constants."""
        return {value: number for number, node in enumerate(self.nodes) for value in node.outputs}

    def value(self, var: ValueId) -> Any:
        return self.cells[var][0]

    def on_device(self, value: ValueId) -> bool:
        return value in self.contexts

    def touches_device(self, node: Node) -> bool:
        return any(map(self.on_device, node.inputs)) or any(map(self.on_device, node.outputs))

    @property
    def merge_launches(self) -> str:
        """The user's option `merge_launches`, with 'always' instead of 'auto' if launches are merged immediately."""
        wish = self.options().merge_launches
        return "always" if self.merges_at_once and wish == "auto" else wish

    @functools.cached_property
    def branches(self) -> Branches:
        return Branches(self)

    def roles(self, path: Path, unrepeatable: Collection[Node] = frozenset()) -> Roles:
        """Return the roles of the nodes on a path; `unrepeatable` nodes could not be recorded."""
        key = path, frozenset(unrepeatable)
        if key not in self._roles:
            steps = ((node, path.inputs_of(node)) for _, node in path.steps)
            self._roles[key] = _find_roles(self, steps, unrepeatable)
        return self._roles[key]

    @functools.cached_property
    def advancing(self) -> list[tuple[ValueId, ValueId]]:
        """Pairs of a shared array on the device and its next value, except for arrays that are results themselves."""
        pairs = self.updates.items()
        return [(var, following) for var, following in pairs if var in self.contexts and var not in self.outputs]

    def run(self, number: int) -> None:
        """Run one node; if the node raises an error, `explain` may raise a more informative one."""
        try:
            self.nodes[number].compute()
        except Exception:
            self.explain(number)
            raise

    def forget(self) -> None:
        for var, cell in self.cells.items():
            if var in self.producers and isinstance(cell[0], Array):
                cell[0] = None
