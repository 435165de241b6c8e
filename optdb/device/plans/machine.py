"""The machine that runs a linked function: it records, plans, and repeats.

The branches that a call takes are guards, like
the shapes (``paths``): early conditions are evaluated before a plan is selected, others within it.
"""

from __future__ import annotations

import logging
import operator
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optdb.collector import collector_paused
from optdb.device.plans.budget import BudgetedRecorder
from optdb.device.plans.graph import ValueId
from optdb.device.plans.linked import LinkedFunction
from optdb.device.plans.paths import Path, Round
from optdb.device.plans.plan import Before, Plan
from optdb.device.plans.recording import Recording, record, same
from optdb.device.plans.steps import BranchTaken
from optdb.device.plans.updates import MAX_RECORDINGS, CellPairs, CommitUpdates, advance, check_updates, commit
from optdb.runtime.commands import CommandList, listened, listening
from optdb.runtime.holding import HeldCommands
from optdb.runtime.host_buffers import pays_zero_copy
from optdb.runtime.run_ahead import RunAhead
from optdb.runtime.sigint import commit_point, defer_sigint, repeat_without_sigint

_logger = logging.getLogger(__name__)

#: The most plans that are cached, each for other shapes of inputs.
PLAN_CACHE_SIZE = 8
#: After this number of recordings in a row without a plan used, a function computes without plans.
MAX_UNUSED_RECORDINGS = 16
#: The most plans that a call starts when its branches differ from the last call's; then it computes without.
_MOST_GUESSES = 3
#: The most combinations of shapes and early conditions whose last path is cached.
_MOST_EXPECTED = 64
#: For each input of a call, its shape, and where its array is, which together select a plan.
Shapes = tuple[tuple[int, ...] | None, ...]
Addresses = tuple[Any, ...]
#: Returns the value in a cell.
_first_of = operator.itemgetter(0)


class PlannedMachine:
    """Runs a function, by a plan if one exists for inputs like the present ones.

    It gives inputs their next values itself: all at once, wherever they are.
    """

    def __init__(self, linked: LinkedFunction) -> None:
        self.linked = linked
        #: Called by the next call when all that may raise is done: if this raises, nothing is stored.
        self.before_commit: Callable[[], None] | None = None
        self._advancing: CellPairs = [
            (linked.cells[var], linked.cells[following]) for var, following in linked.updates.items()
        ]
        #: By the shapes of the inputs and the path of the call.
        self._cache: OrderedDict[tuple[Shapes, Path | None], _PlanCacheEntry] = OrderedDict()
        #: The path of the last call with inputs of some shapes, by these and the first round.
        self._expected: dict[tuple[Shapes, Round], Path] = {}
        self._loaded: Plan | None = None
        #: What the last call has found, while the next one may find the same.
        self._last = _LastCall()
        self._unused_recordings = 0
        #: Whether a call changes nothing but its results, so that it may be interrupted anywhere.
        self._is_pure = not (linked.updates or linked.final)
        #: The cells of outputs, if one of them is an input, whose cell gets another value: a call returns the values.
        self._returned = [linked.cells[var] for var in linked.outputs]
        if set(linked.updates).isdisjoint(linked.outputs):
            self._returned = []
        self._inputs = [(var, linked.cells[var], linked.on_device(var)) for var in linked.inputs]
        #: For each input, an array that it was, and that array's part of the key: most are those of the last call.
        self._keyed: list[tuple[Any, Any, Any]] = [(None, None, None)] * len(self._inputs)
        #: The inputs that were ever rebindable.
        self._rebound: frozenset[ValueId] = frozenset()
        self._concerned = [linked.cells[var] for var in linked.inputs if linked.on_device(var)]
        self._concerned += [linked.cells[var] for var in linked.outputs]
        precleared = {id(cell) for cell in linked.clear_before}
        following = set(linked.updates.values())
        self._borrowed = frozenset(
            index
            for index, var in enumerate(linked.outputs)
            if var not in following and id(linked.cells[var]) not in precleared
        )
        #: For each borrowed result on the host: its cell, and those of the nodes' values that may share its memory.
        self._reused = [
            (linked.cells[linked.outputs[index]], [linked.cells[var] for var in linked.aliases(linked.outputs[index])])
            for index in self._borrowed
            if not linked.on_device(linked.outputs[index])
        ]

    @property
    def plans(self) -> list[Plan]:
        """The cached plans, that of the last call at the end."""
        return [entry.made.plan for entry in self._cache.values() if entry.made is not None]

    def seen(self) -> list[dict[ValueId, tuple[Any, Any]]]:
        """Return the inputs of recorded calls, the last one at the end: their shapes, and small values of the host."""
        return [
            {var: (shape, entry.recording.given.get(var)) for var, shape in zip(self.linked.inputs, shapes)}
            for (shapes, _), entry in self._cache.items()
        ]

    def merge_at_once(self) -> None:
        """Let plans merge small launches from the first one on, and not when that has paid."""
        self.linked.merges_at_once = True

    def repeat_commands(self) -> None:
        """Let a call that finds what the last one has found enqueue the same commands, and do nothing else."""
        self.linked.repeats_commands = True

    @property
    def last_recording(self) -> Recording | None:
        """The recording that was used last; None if there is none."""
        entry = next(reversed(self._cache.values()), None)
        return None if entry is None else entry.recording

    @property
    def recorded(self) -> Recording | None:
        """The recording for inputs like those in the cells now; None if there is none."""
        entry = self._current_entry()
        return None if entry is None else entry.recording

    def __call__(self, before: Before | None = None) -> list[Any] | None:
        """Compute the outputs from the values in the cells of the inputs.

        `before` is called with the commands that are enqueued first, before anything that another function could see;
        it only enqueues commands, and returns whether these are among them.

        Return None if the outputs are in their cells.
        """
        if self._is_pure and self.before_commit is None:
            commands = self.repeated_commands() if before is None else None
            if commands is None:
                return self._call(before)
            commands.enqueue()
            return None
        return defer_sigint(self._call, before)

    def _call(self, before: Before | None) -> list[Any] | None:
        if before is not None and not self._knows_first_commands():
            before(CommandList())
            before = None
        if self._call_again():
            return None
        for cell in self.linked.clear_before:
            cell[0] = None
        if self._reused:
            self._spare_arguments()
        made, search = self._find()
        while made is not None:
            try:
                made.plan.run(before)
                self._finish(made)
                self._loaded = made.plan
                break
            except BranchTaken as taken:
                before = None
                made.plan.unload()
                assert search is not None, "a plan with branches was found without a search"
                made = self._find_next(search, taken.round)
            except BaseException:
                made.plan.unload()
                raise
        if search is not None:
            self._end(search, made)
        elif made is None:
            self._compute()
        commit_point()
        outputs = [cell[0] for cell in self._returned]
        advance(self._advancing)
        if made is not None:
            made.plan.call_ended()
            if self.linked.repeats_commands:
                self._last.repetition = self._repetition(made)
        return outputs or None

    def _find(self) -> tuple[_MadePlan | None, _Search | None]:
        """Return the plan for the inputs, loaded, and how it was found.

        There is no plan if the call is to be recorded, and no search either if it is to be computed without a plan. Of
        the last call's plan, if the inputs are in the same places, there is no search: that takes a small part of the
        time in which a plan is found by the shapes and places of many inputs.
        """
        # Within another function, such as a Scan around this one, the outer function is recorded.
        if listening() is not None or self._unused_recordings >= MAX_UNUSED_RECORDINGS:
            return None, None
        before = self._loaded
        if self._finds_last_plan():
            self._loaded = None
            return self._last.made, None
        self._last = _LastCall()
        shapes, addresses = self._key()
        first = self._first()
        path = self._expected_path(shapes, first)
        search = _Search(shapes, addresses, first, path, before)
        return self._load(shapes, addresses, path), search

    def _finds_last_plan(self) -> bool:
        """Tell whether a call finds the plan of the last one, since its inputs are in the same places."""
        last = self._last
        if last.made is None or self._loaded is not last.made.plan or listening() is not None:
            return False
        return last.inputs.are_there() and all(getattr(cell[0], "shape", None) == shape for cell, shape in last.shapes)

    def _knows_first_commands(self) -> bool:
        """Tell whether a call begins with the commands with which the last one began."""
        made = self._last.made
        return made is not None and self._finds_last_plan() and not made.plan.expect(1)

    def _find_next(self, search: _Search, taken: Round) -> _MadePlan | None:
        """Return another plan, after conditions differed from those of the last one."""
        search.guesses -= 1
        search.path = self._cached_path_after(taken, search.shapes) if search.guesses else None
        return self._load(search.shapes, search.addresses, search.path)

    def _end(self, search: _Search, made: _MadePlan | None) -> None:
        """Record the call if no plan was found for it; note what the next one may expect."""
        path = search.path
        if made is None:
            path = self._record(search.shapes, search.addresses, search.first)
        elif search.before is made.plan and not (self.linked.branches.conditions or self._rebound):
            # No branches, and no inputs that get other buffers: the same arrays find the same plan.
            self._note_inputs(made, search.shapes)
        if path is not None:
            self._expected[search.shapes, search.first] = path

    def _note_inputs(self, made: _MadePlan, shapes: Shapes) -> None:
        """Note where the inputs of a call were whose key has just been made, unless an array is gone already."""
        here = [(cell, array()) for (_, cell, is_here), (array, *_) in zip(self._inputs, self._keyed) if is_here]
        if all(array is not None for _, array in here):
            others = [(cell, shape) for (_, cell, is_here), shape in zip(self._inputs, shapes) if not is_here]
            self._last = _LastCall(made, _SameValues(here), others)

    def again(self) -> bool:
        """Compute once more, if all is as it was in the last call; return False, and do nothing, if it may not be."""
        return defer_sigint(self._call_again)

    def _call_again(self) -> bool:
        """Enqueue the commands of the last call, if they are all that this one does; return whether they were."""
        commands = self.repeated_commands()
        repetition, self._last.repetition = self._last.repetition, None
        if commands is None:
            return False
        self._begin_commit()
        commands.enqueue()
        self._last.repetition = repetition
        return True

    def repeated_commands(self) -> CommandList | None:
        """Return the commands of the last call, if they are all that the next one does; the caller enqueues them."""
        repetition = self._last.repetition
        if repetition is None or listening() is not None or not repetition.is_due() or repetition.plan.expect(1):
            return None
        return repetition.commands

    def _repetition(self, made: _MadePlan) -> _Repetition | None:
        """Return how the call that has just ended is repeated, if one like it is nothing but its commands."""
        plan = made.plan
        if plan.always_computes or self._reused or self._returned or plan.buffers.io.external:
            return None
        if made.copies or not made.commit.is_final:
            return None
        entry = self._current_entry()
        if entry is None or entry.made is not made:
            return None
        with plan.restored_cells():
            commands = self._commands_of(made)
        on_host = [var for var, _, here in self._inputs if not here]
        if commands is None or not all(isinstance(entry.recording.given.get(var), np.ndarray) for var in on_host):
            return None  # an input is large, or no array
        hosts = [(self.linked.cells[var], np.array(self.linked.value(var))) for var in on_host]
        values = [(cell, cell[0]) for cell in self._concerned]
        return _Repetition(plan, _SameValues(values), hosts, commands)

    def _commands_of(self, made: _MadePlan) -> CommandList | None:
        """Return all that a call by a plan enqueues, with the present inputs; None if it needs Python."""
        commands = made.plan.unconditional_commands()
        updates = None if commands is None else made.commit.commands()
        return None if commands is None or updates is None else CommandList([*commands, *updates])

    def _finish(self, made: _MadePlan) -> None:
        """Run the steps of a plan that overwrite inputs, and commit, wholly or not at all."""
        plan, commit = made.plan, made.commit
        if self._is_pure and not made.copies and self.before_commit is None:
            return
        # Without Python between the first command and the last one, nothing can raise.
        if not (made.copies or plan.final_computes) and commit.is_ready():
            self._begin_commit()
            plan.run_final()
            commit.run()
            return
        held = HeldCommands()
        with listened(held):
            plan.run_final()
            was_ready = commit.is_ready()
            commit.run()
            made.copies = plan.release(self._borrowed) or not was_ready
        self._begin_commit()
        held.enqueue()

    def repeat(self, times: int, run_ahead: RunAhead) -> None:
        """Compute several times from the values in the cells of the inputs, with as little Python between as possible.

        `run_ahead` bounds how many steps are enqueued and not computed.

        The next values of the inputs are all on the device. The first steps are ordinary calls, until there is a plan
        and the function's arrays are where the plan has them. From then on a step is the plan's commands and those that
        commit the updates. The last step is again an ordinary call, and leaves the same state as any call.

        A plan with nodes that compute in Python in each call is run by ordinary calls alone.
        """
        while times:
            self()
            run_ahead.after_step()
            times -= 1
            commands = None if times < 2 else self._unconditional_commands(times - 1)
            if commands is None:
                continue
            enqueue = commands.enqueue if commands.needs_python else commands.batch.run

            def step(enqueue: Callable[[], None] = enqueue) -> None:
                enqueue()
                run_ahead.after_step()

            repeat_without_sigint(step, times - 1)
            times = 1

    def _unconditional_commands(self, times: int) -> CommandList | None:
        """Return all commands that each of `times` calls enqueues, with the present inputs, if nothing changes between.

        None if such a call needs Python.
        """
        entry = self._current_entry()
        made = None if entry is None else entry.made
        if made is None or made.plan is not self._loaded or made.plan.expect(times):
            return None
        made.plan.restore_cells()
        return self._commands_of(made)

    def drop_external(self) -> None:
        """Release the external buffers of inputs and outputs."""
        for plan in self.plans:
            plan.drop_external()

    def _key(self) -> tuple[Shapes, Addresses]:
        """Return the shapes of the inputs, and the addresses of the device arrays that are not rebound."""
        shapes, addresses = [], []
        rebindable = self.linked.rebindable_inputs
        self._rebound |= rebindable
        for i, (var, cell, here) in enumerate(self._inputs):
            value = cell[0]
            if not here:
                shapes.append(getattr(value, "shape", None))
                continue
            known, shape, address = self._keyed[i]
            if known is None or known() is not value:
                shape, buffer = value.shape, value.base_data
                if var in rebindable and pays_zero_copy(value.nbytes):
                    address = value.dtype
                else:
                    address = None if buffer is None else buffer.int_ptr, value.offset, value.strides
                if var not in self._rebound:  # whose arrays get other buffers
                    self._keyed[i] = weakref.ref(value), shape, address
            shapes.append(shape)
            addresses.append(address)
        return tuple(shapes), tuple(addresses)

    def _spare_arguments(self) -> None:
        """Drop the memory of the last results if it is an argument now: nodes then compute into new memory."""
        arguments = [cell[0] for _, cell, here in self._inputs if not here and isinstance(cell[0], np.ndarray)]
        for result, cells in self._reused:
            value = result[0]
            if isinstance(value, np.ndarray) and any(np.may_share_memory(value, given) for given in arguments):
                for cell in cells:
                    cell[0] = None

    def _begin_commit(self) -> None:
        """Defer SIGINT, and call `before_commit`, once."""
        commit_point()
        before_commit, self.before_commit = self.before_commit, None
        if before_commit is not None:
            before_commit()

    def _compute(self) -> None:
        """Compute without a plan."""
        self._unload()
        linked = self.linked
        branches = linked.branches
        if listening() is not None or not branches.final:
            branches.walk(linked.run, self._first())
            check_updates(linked)
            self._begin_commit()
            return
        held = HeldCommands()
        is_final = False

        def compute(number: int) -> None:
            nonlocal is_final
            if number in branches.final and not is_final:
                commit_point()
                is_final = True
            with listened(held) if is_final else nullcontext():
                linked.run(number)

        branches.walk(compute, self._first())
        check_updates(linked)
        self._begin_commit()
        held.enqueue()

    def _first(self) -> Round:
        """Evaluate the early conditions; return the first round."""
        return self.linked.branches.first(self.linked.run)

    def _expected_path(self, shapes: Shapes, first: Round) -> Path | None:
        """Return the path that a call will probably take: that of the last call like it; None if there was none."""
        return self._expected.get((shapes, first)) if first.asked else self.linked.branches.path(first)

    def _cached_path_after(self, found: Round, shapes: Shapes) -> Path | None:
        """Return a cached path that continues a round as its conditions now demand; None if none does."""
        following = self.linked.branches.next(found)
        paths = (path for cached_shapes, path in reversed(self._cache) if cached_shapes == shapes)
        return next((path for path in paths if path is not None and following in path.rounds), None)

    def _current_entry(self) -> _PlanCacheEntry | None:
        """Return the cache entry for inputs like those in the cells now."""
        shapes, addresses = self._key()
        entry = self._cache.get((shapes, self._expected_path(shapes, self._first())))
        return entry if entry is not None and entry.addresses == addresses else None

    def _record(self, shapes: Shapes, addresses: Addresses, first: Round) -> Path | None:
        """Compute, and record the commands; return the path that was taken, if it is to be planned."""
        self._unload()
        # A recording only grows, so the collector would run again and again and free nothing.
        recorder = BudgetedRecorder(self.linked)
        try:
            with collector_paused():
                recording = record(self.linked, recorder, first)
        except MemoryError:
            self.linked.forget()
            raise
        recording.bind_io()
        copied = recording.copied_inputs
        self.linked.rebindable_inputs -= copied
        commit_point()
        held = recorder.held or HeldCommands()
        with listened(held):
            commit(self.linked)
        self._begin_commit()
        held.enqueue()
        path = recording.path
        # In the next call, inputs that are copied from now on lie in other buffers.
        if copied or not path.can_begin_anew:
            return None
        self._cache[shapes, path] = _PlanCacheEntry(addresses, recording)
        if len(self._cache) > PLAN_CACHE_SIZE:
            self._cache.popitem(last=False)
        if len(self._expected) > _MOST_EXPECTED:
            self._expected.clear()
        self._unused_recordings += 1
        if self._unused_recordings == MAX_UNUSED_RECORDINGS:
            _logger.info("A function's inputs differ from call to call; it runs without plans from now on.")
        return path

    def _load(self, shapes: Shapes, addresses: Addresses, path: Path | None) -> _MadePlan | None:
        """Return the plan of a path, loaded, and made before if need be; None if no cache entry fits."""
        entry = self._cache.get((shapes, path))
        if entry is None or entry.addresses != addresses:
            return None
        self._cache.move_to_end((shapes, path))
        made = entry.made
        if made is None:
            self._unload()
            self.linked.forget()
            times = 0 if entry.recording.advances_from_external else MAX_RECORDINGS
            made = entry.made = _MadePlan(self._plan(entry.recording), CommitUpdates(self.linked, times))
        self._unused_recordings = 0
        if self._loaded is not made.plan:
            self._unload()
            made.plan.load()
        # Set again only after the plan has succeeded: after an error, the cells hold partial results.
        self._loaded = None
        return made

    def _plan(self, recording: Recording) -> Plan:
        """Return a plan; if memory is short, drop the other plans first."""
        with collector_paused():
            try:
                return Plan(recording)
            except MemoryError:
                if not self.plans:
                    raise
            for entry in self._cache.values():
                entry.made = None
            return Plan(recording)

    def _unload(self) -> None:
        self._last = _LastCall()
        if self._loaded is not None:
            self._loaded.unload()
            self._loaded = None


@dataclass(eq=False)
class _Search:
    """How the plan for a call is found."""

    shapes: Shapes
    addresses: Addresses
    first: Round
    path: Path | None
    #: The plan of the last call.
    before: Plan | None
    guesses: int = _MOST_GUESSES


class _SameValues:
    """Cells and the values that they had; of hundreds, it takes microseconds to see that they still have them."""

    def __init__(self, pairs: Sequence[tuple[list[Any], Any]]) -> None:
        self._cells = [cell for cell, _ in pairs]
        self._values = [value for _, value in pairs]

    def are_there(self) -> bool:
        """Tell whether each cell has the very value."""
        return all(map(operator.is_, map(_first_of, self._cells), self._values))


@dataclass(eq=False)
class _LastCall:
    """What a call has found; as long as the next one finds the same, it does not search for its plan."""

    #: The plan that its inputs have selected; None if they may select another one next time.
    made: _MadePlan | None = None
    #: The inputs on the device.
    inputs: _SameValues = field(default_factory=lambda: _SameValues(()))
    #: The cells of other inputs, with the shapes of their values.
    shapes: list[tuple[list[Any], Any]] = field(default_factory=list)
    #: How it is repeated without Python, if that is known.
    repetition: _Repetition | None = None


@dataclass(eq=False)
class _Repetition:
    """A call that is nothing but its commands while all values are those that it has found."""

    plan: Plan
    #: Arrays on the device, and results.
    values: _SameValues
    #: Cells of the function's inputs on the host, with copies of their values.
    given: list[tuple[list[Any], Any]]
    commands: CommandList

    def is_due(self) -> bool:
        """Tell whether a call finds the same now."""
        are_there = self.values.are_there()
        return are_there and (not self.given or all(same(cell[0], before) for cell, before in self.given))


@dataclass(eq=False)
class _MadePlan:
    """A plan, and what commits the updates of its calls."""

    plan: Plan
    commit: CommitUpdates
    #: Whether a call may have to copy results for the caller, even if its commit is recorded.
    copies: bool = True


@dataclass(eq=False)
class _PlanCacheEntry:
    """For inputs of some shapes: the addresses of device arrays, the recording, and its plan once made."""

    addresses: Addresses
    recording: Recording
    made: _MadePlan | None = None
