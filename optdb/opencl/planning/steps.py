"""The steps of a plan: commands, and nodes whose commands are guarded by what the nodes see.

A :class:`GuardedStep` compares what its node sees with the recording, in value or in place. If nothing has changed, its
commands are repeated, else the node computes. Its outputs then go where the plan has their places, so that later nodes
find them there; only if one does not fit, as another shape does not, those nodes compute in turn. A
:class:`CommandSegment` compares once for many steps. The plan enqueues what a step says is ``due``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from optdb.host.graph import Variable
from optdb.opencl.planning.paths import Branches, Round
from optdb.opencl.planning.recording import LinkedFunction, same
from optdb.runtime.arrays import Array, DeviceArray, overwrite
from optdb.runtime.commands import Command, CommandList

#: An output; if it is on the device, its place in the plan; if it is on the host, what it was, as `kept` gives it; and
#: whether its memory is its own, or an input's of which it is a view.
GuardedOutput = tuple[Variable, DeviceArray | None, Any, bool]


class GuardedStep:
    """A node that may have to compute in Python.

    Parameters
    ----------
    linked : LinkedFunction
        The function.
    number : int
        Of the node in it.
    inputs : iterable of Variable
        What the node uses.
    commands : CommandList
        What repeats the node, if nothing has changed.
    free : bool
        Whether it computes each time.
    outputs : list of GuardedOutput
        What is known of each.
    """

    def __init__(
        self,
        linked: LinkedFunction,
        number: int,
        inputs: Iterable[Variable],
        commands: CommandList,
        free: bool,
        outputs: list[GuardedOutput],
    ) -> None:
        self._linked = linked
        self._number = number
        #: What it looks at.
        self.inputs = frozenset(inputs)
        self.commands = commands
        self.free = free
        self._outputs = outputs
        self._cells = [linked.cells[var] for var, *_ in outputs]
        #: Those of its outputs that are on the host.
        self.on_host = [var for var, array, *_ in outputs if array is None]
        #: Whether it has to compute next time, whatever its inputs are.
        self.stale = False

    @property
    def computes(self) -> bool:
        """Whether it computes at the next run, even if nothing has changed."""
        return self.free or self.stale

    def restore(self) -> None:
        """Take note that the cells of host values may hold others than those of the recording.

        What is on the device is in its place again, and is computed there by the commands.
        """
        self.stale = self.stale or bool(self.on_host)

    def due(self, changed: set[Variable]) -> Sequence[Command]:
        """Return the commands that repeat the node, or compute it, and return none.

        Those outputs are added to `changed` that are not where or what they were.
        """
        if not (self.free or self.stale) and changed.isdisjoint(self.inputs):
            return self.commands
        self._linked.run(self._number)
        self.stale = False
        for cell, (var, array, value, own) in zip(self._cells, self._outputs):
            unchanged = same(cell[0], value) if array is None else _is_in_place(cell, array, own)
            if not unchanged:
                changed.add(var)
                self.stale = True
        return ()


class BranchTaken(Exception):
    """A condition is not what a plan was made for; no step of the branch has been done.

    Parameters
    ----------
    round_ : Round
        Behind which that was found.
    """

    def __init__(self, round_: Round) -> None:
        super().__init__(round_)
        self.round = round_


class BranchGuard:
    """A look at conditions that are known only within a call, before the steps of the branches that they choose.

    Parameters
    ----------
    branches : Branches
        Of the function.
    round_ : Round
        What asks for the conditions.
    expected : tuple of bool
        What they are on the plan's path.
    """

    #: Its conditions may change at each call.
    computes = True

    def __init__(self, branches: Branches, round_: Round, expected: tuple[bool, ...]) -> None:
        self._branches, self._round, self._expected = branches, round_, expected
        self.commands = CommandList()

    def restore(self) -> None:
        """Do nothing: a guard keeps no values."""

    def due(self, changed: set[Variable]) -> Sequence[Command]:
        """Look at the conditions; return no commands.

        Raises
        ------
        BranchTaken
            If they are not what they are on the plan's path.
        """
        if self._branches.answers(self._round) != self._expected:
            raise BranchTaken(self._round)
        return ()


class CommandSegment:
    """Steps behind each other that are mostly repeated together, so that one look is enough for all of them.

    Parameters
    ----------
    steps : sequence of GuardedStep or CommandList
        Nodes that may have to compute, and the commands of those that never have to.
    """

    def __init__(self, steps: Sequence[GuardedStep | CommandList]) -> None:
        self._steps = steps
        self._watched = [step for step in steps if isinstance(step, GuardedStep)]
        self._seen = frozenset().union(*(step.inputs for step in self._watched))
        self.commands = CommandList(
            command for step in steps for command in (step.commands if isinstance(step, GuardedStep) else step)
        )
        self._stale = False

    @property
    def computes(self) -> bool:
        """Whether a node computes at the next run, even if nothing has changed."""
        return self._stale

    def restore(self) -> None:
        """Take note that the cells of host values may hold others than those of the recording."""
        for step in self._watched:
            step.restore()
        self._stale = self._stale or any(step.stale for step in self._watched)

    def due(self, changed: set[Variable]) -> Sequence[Command]:
        """Return the commands that repeat all steps, or let each look for itself, and return none."""
        if not self._stale and changed.isdisjoint(self._seen):
            return self.commands
        self._stale = True  # and stays so if a node raises
        for step in self._steps:
            for command in step.due(changed) if isinstance(step, GuardedStep) else step:
                command.enqueue()
        self._stale = any(step.stale for step in self._watched)
        return ()


def in_segments(
    steps: Iterable[GuardedStep | BranchGuard | CommandList], changing: set[Variable]
) -> list[GuardedStep | BranchGuard | CommandSegment]:
    """Gather steps that stay the same together.

    Parameters
    ----------
    steps : iterable of GuardedStep or CommandList
        In order.
    changing : set of Variable
        What may change at each call: steps that look at it stay alone, as those do that compute each time. What these
        give on the host is added.
    """
    found: list[GuardedStep | BranchGuard | CommandSegment] = []
    together: list[GuardedStep | CommandList] = []
    for step in steps:
        if _may_be_joined(step, changing):
            together.append(step)
            continue
        if isinstance(step, GuardedStep):
            changing.update(step.on_host)
        if together:
            found.append(CommandSegment(together))
            together = []
        found.append(step)
    return [*found, CommandSegment(together)] if together else found


def _may_be_joined(step: GuardedStep | BranchGuard | CommandList, changing: set[Variable]) -> bool:
    """Tell whether a step is mostly repeated together with others."""
    if isinstance(step, GuardedStep):
        return not step.free and changing.isdisjoint(step.inputs)
    return isinstance(step, CommandList)


def _is_in_place(cell: list[Any], array: DeviceArray, own: bool) -> bool:
    """Tell whether an output lies in its place; bring it there if that can be done."""
    got = cell[0]
    if got is array:
        return True
    if not _lies_like(got, array) and not (own and overwrite(array, got)):
        return False
    cell[0] = array
    return True


def _lies_like(one: Any, other: Array) -> bool:
    return (
        isinstance(one, Array)
        and one.shape == other.shape
        and one.strides == other.strides
        and one.offset == other.offset
        and (one.base_data is other.base_data or one.base_data == other.base_data)
    )
