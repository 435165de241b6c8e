"""Runs a linked function: records a call, makes a plan, and repeats the plan."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from optdb.collector import collector_paused
from optdb.device.plans.linked import LinkedFunction, Path, Round, ValueId
from optdb.device.plans.plan import Before, Plan
from optdb.device.plans.plan_cache import (
    Addresses,
    InputKeys,
    LastCall,
    PlanCacheEntry,
    PlanSearch,
    Repetition,
    Shapes,
)
from optdb.device.plans.recording import BudgetedRecorder, Recording, record
from optdb.device.plans.steps import BranchTaken
from optdb.device.plans.updates import CellPairs, advance, check_updates, commit
from optdb.runtime.commands import CommandList
from optdb.runtime.dispatch import HeldCommands, listened, listening
from optdb.runtime.sigint import commit_point, defer_sigint, repeat_without_sigint
from optdb.runtime.timing import RunAhead

_logger = logging.getLogger(__name__)

#: The maximum number of cached plans, one for each combination of input shapes and path.
PLAN_CACHE_SIZE = 8
#: After this many consecutive recordings without any use of a plan, a function runs without plans.
MAX_UNUSED_RECORDINGS = 16


class PlannedMachine:
    """Runs a function, with a plan if there is one for the inputs' shapes and addresses, and applies its updates."""

    def __init__(self, linked: LinkedFunction) -> None:
        self.linked = linked
        #: A callback for the next call only: it runs after everything else that may raise; if it raises, no update is
        #: stored.
        self.before_commit: Callable[[], None] | None = None
        self._advancing: CellPairs = [
            (linked.cells[var], linked.cells[following]) for var, following in linked.updates.items()
        ]
        #: Maps the input shapes and the path of a call to a cache entry.
        self._cache: OrderedDict[tuple[Shapes, Path], PlanCacheEntry] = OrderedDict()
        self._loaded: Plan | None = None
        #: The plan and inputs of the last call, if the next call may reuse them.
        self._last = LastCall()
        self._unused_recordings = 0
        #: Whether a call's only effects are its results, so that it may be interrupted anywhere.
        self._is_pure = not (linked.updates or linked.final)
        #: The cells of the outputs; empty unless an output is also an updated input. In this case, the update changes
        #: the value in the output's cell.
        is_returned = not set(linked.updates).isdisjoint(linked.outputs)
        self._returned = [linked.cells[var] for var in linked.outputs] if is_returned else []
        self._keys = InputKeys(linked)
        self._concerned = [linked.cells[var] for var in linked.inputs if linked.on_device(var)]
        self._concerned += [linked.cells[var] for var in linked.outputs]
        precleared = {id(cell) for cell in linked.clear_before}
        following = set(linked.updates.values())
        borrowed = {
            index: var
            for index, var in enumerate(linked.outputs)
            if var not in following and id(linked.cells[var]) not in precleared
        }
        self._borrowed = frozenset(borrowed)
        #: For each host result that the caller may borrow: its cell, and the cells of node outputs that may share its
        #: memory.
        self._reused = [
            (linked.cells[var], [linked.cells[alias] for alias in linked.aliases(var)])
            for var in borrowed.values()
            if not linked.on_device(var)
        ]

    @property
    def plans(self) -> list[Plan]:
        """The cached plans; the most recently used one is last."""
        return [entry.plan for entry in self._cache.values() if entry.plan is not None]

    def seen(self) -> list[dict[ValueId, tuple[Any, Any]]]:
        """Return the input shapes and small host values of recorded calls, with the most recent call last."""
        return [
            {var: (shape, entry.recording.given.get(var)) for var, shape in zip(self.linked.inputs, shapes)}
            for (shapes, _), entry in self._cache.items()
        ]

    def merge_at_once(self) -> None:
        """Let plans merge small launches in their first run, without waiting until merging pays off."""
        self.linked.merges_at_once = True

    def repeat_commands(self) -> None:
        """Let calls with unchanged inputs do nothing but enqueue the last call's commands."""
        self.linked.repeats_commands = True

    @property
    def last_recording(self) -> Recording | None:
        entry = next(reversed(self._cache.values()), None)
        return None if entry is None else entry.recording

    @property
    def recorded(self) -> Recording | None:
        """The recording for the current inputs; None if there is none."""
        entry = self._current_entry()
        return None if entry is None else entry.recording

    def __call__(self, before: Before | None = None) -> list[Any] | None:
        """Compute the outputs from the input cells; return None if the outputs are in their cells.

        `before` is called with the first commands, before any effect that another function could observe. `before` must
        do nothing but enqueue commands, and must return whether it has enqueued the given commands.
        """
        if self._is_pure and self.before_commit is None:
            repetition = self._last.repetition
            commands = None if repetition is None or before is not None else repetition.next_commands()
            if commands is None:
                return self._call(before)
            commands.enqueue()
            return None
        return defer_sigint(self._call, before)

    def _call(self, before: Before | None) -> list[Any] | None:
        if before is not None:
            last = self._last.plan
            if last is None or not self._finds_last_plan() or last.expect(1):
                before(CommandList())
                before = None
        if self._call_again():
            return None
        for cell in self.linked.clear_before:
            cell[0] = None
        if self._reused:
            self._spare_arguments()
        plan, search = self._find()
        while plan is not None:
            try:
                plan.run(before)
                self._finish(plan)
                self._loaded = plan
                break
            except BranchTaken as taken:
                before = None
                plan.unload()
                assert search is not None, "a plan with branches is found only by a search"
                # The call's conditions differ from those of this plan, so try another plan.
                path = self._cached_path(search.shapes, self.linked.branches.next(taken.round))
                plan = self._load(search.shapes, search.addresses, path)
            except BaseException:
                plan.unload()
                raise
        if search is not None:
            self._end(search, plan)
        elif plan is None:
            self._compute()
        commit_point()
        outputs = [cell[0] for cell in self._returned]
        advance(self._advancing)
        if plan is not None:
            plan.call_ended()
            if self.linked.repeats_commands:
                self._last.repetition = self._repetition(plan)
        return outputs or None

    def _find(self) -> tuple[Plan | None, PlanSearch | None]:
        """Load and return the plan for the inputs, and the search that found it.

        The plan is None if the call must be recorded. The search is None if the last call's plan fits. The plan and the
        search are both None if the call must run without a plan.
        """
        # A call within another function, such as a Scan, is recorded as a part of that function.
        if listening() is not None or self._unused_recordings >= MAX_UNUSED_RECORDINGS:
            return None, None
        before = self._loaded
        if self._finds_last_plan():
            self._loaded = None
            return self._last.plan, None
        self._last = LastCall()
        shapes, addresses = self._keys.key()
        search = PlanSearch(shapes, addresses, self._first(), before)
        return self._load(shapes, addresses, self._expected_path(shapes, search.first)), search

    def _finds_last_plan(self) -> bool:
        """Return whether a call uses the last call's plan, because its inputs are the same arrays."""
        last = self._last
        if last.plan is None or self._loaded is not last.plan or listening() is not None:
            return False
        return last.inputs.are_identical() and all(
            getattr(cell[0], "shape", None) == shape for cell, shape in last.shapes
        )

    def _end(self, search: PlanSearch, plan: Plan | None) -> None:
        """Record the call if no plan was found for it; cache its inputs for the next call."""
        if plan is None:
            self._record(search.shapes, search.addresses, search.first)
        elif search.before is plan and not (self.linked.branches.conditions or self._keys.rebound):
            # Without branches or rebindable inputs, the same arrays always select the same plan.
            noted = self._keys.noted(search.shapes)
            if noted is not None:
                self._last = LastCall(plan, *noted)

    def again(self) -> bool:
        """Repeat the last call if all values are unchanged; otherwise, do nothing and return False."""
        return defer_sigint(self._call_again)

    def _call_again(self) -> bool:
        """Enqueue the last call's commands if this call needs nothing else; return whether they were enqueued."""
        commands = self.repeated_commands()
        repetition, self._last.repetition = self._last.repetition, None
        if commands is None:
            return False
        self._begin_commit()
        commands.enqueue()
        self._last.repetition = repetition
        return True

    def repeated_commands(self) -> CommandList | None:
        """Return the last call's commands for the caller to enqueue; None if the next call needs anything else."""
        repetition = self._last.repetition
        return None if repetition is None else repetition.next_commands()

    def _repetition(self, plan: Plan) -> Repetition | None:
        """Return how to repeat the call that just ended; None if repeating it takes more than enqueueing commands."""
        if plan.always_computes or self._reused or self._returned or plan.buffers.io.external:
            return None
        if plan.copies or not plan.commit.is_final:
            return None
        entry = self._current_entry()
        if entry is None or entry.plan is not plan:
            return None
        with plan.restored_cells():
            commands = plan.unconditional_commands()
        on_host = [var for var, _, here in self._keys.inputs if not here]
        if commands is None or not all(isinstance(entry.recording.given.get(var), np.ndarray) for var in on_host):
            return None  # an input is large, or is not an array
        hosts = [(self.linked.cells[var], np.array(self.linked.value(var))) for var in on_host]
        values = [(cell, cell[0]) for cell in self._concerned]
        return Repetition(plan, values, hosts, commands)

    def _finish(self, plan: Plan) -> None:
        """Run the plan's steps that overwrite inputs, and then commit; do both completely or not at all."""
        commit = plan.commit
        if self._is_pure and not plan.copies and self.before_commit is None:
            return
        # If no Python runs between the first command and the last one, no error can be raised.
        if not (plan.copies or plan.final_computes) and commit.is_ready():
            self._begin_commit()
            plan.run_final()
            commit.run()
            return
        held = HeldCommands()
        with listened(held):
            plan.run_final()
            was_ready = commit.is_ready()
            commit.run()
            plan.copies = plan.release(self._borrowed) or not was_ready
        self._begin_commit()
        held.enqueue()

    def repeat(self, times: int, run_ahead: RunAhead) -> None:
        """Run several calls on the input cells; all next values must be on the device.

        The first steps are ordinary calls. As soon as a step needs only the commands of a plan and of its commit, the
        following steps only enqueue these commands. The last step is an ordinary call again. `run_ahead` bounds the
        number of unfinished steps.
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
        """Return the commands that each of `times` calls with unchanged inputs repeats; None if a call needs Python."""
        entry = self._current_entry()
        plan = None if entry is None else entry.plan
        if plan is None or plan is not self._loaded or plan.expect(times):
            return None
        plan.restore_cells()
        return plan.unconditional_commands()

    def drop_external(self) -> None:
        for plan in self.plans:
            plan.drop_external()

    def _spare_arguments(self) -> None:
        """Drop earlier results that share memory with an argument, so that nodes allocate new memory."""
        arguments = [cell[0] for _, cell, here in self._keys.inputs if not here and isinstance(cell[0], np.ndarray)]
        for result, cells in self._reused:
            value = result[0]
            if isinstance(value, np.ndarray) and any(np.may_share_memory(value, given) for given in arguments):
                for cell in cells:
                    cell[0] = None

    def _begin_commit(self) -> None:
        commit_point()
        before_commit, self.before_commit = self.before_commit, None
        if before_commit is not None:
            before_commit()

    def _compute(self) -> None:
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
        return self.linked.branches.first(self.linked.run)

    def _expected_path(self, shapes: Shapes, first: Round) -> Path | None:
        return self._cached_path(shapes, first) if first.asked else self.linked.branches.path(first)

    def _cached_path(self, shapes: Shapes, contained: Round) -> Path | None:
        """Return the latest cached path for these shapes that includes the round `contained`, or None."""
        paths = (path for cached_shapes, path in reversed(self._cache) if cached_shapes == shapes)
        return next((path for path in paths if contained in path.rounds), None)

    def _current_entry(self) -> PlanCacheEntry | None:
        shapes, addresses = self._keys.key()
        path = self._expected_path(shapes, self._first())
        entry = None if path is None else self._cache.get((shapes, path))
        return entry if entry is not None and entry.addresses == addresses else None

    def _record(self, shapes: Shapes, addresses: Addresses, first: Round) -> None:
        """Run without a plan, and record the commands; cache the recording if a plan can repeat the call."""
        self._unload()
        # A recording only grows, so garbage collection would free nothing.
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
        # No plan can repeat a call with copied inputs, because the copies are in other buffers in the next call. Nor
        # can a plan repeat a call that checks conditions after it has overwritten inputs: if a condition differs, the
        # call starts again, which requires intact inputs.
        if copied or any(index > path.final for index, _ in path.guards):
            return
        self._cache[shapes, path] = PlanCacheEntry(addresses, recording)
        if len(self._cache) > PLAN_CACHE_SIZE:
            self._cache.popitem(last=False)
        self._unused_recordings += 1
        if self._unused_recordings == MAX_UNUSED_RECORDINGS:
            _logger.info(
                "The shapes of a function's inputs change too often for plans; the function now runs without them."
            )

    def _load(self, shapes: Shapes, addresses: Addresses, path: Path | None) -> Plan | None:
        """Return the plan for a path, after making and loading it if necessary; None if no cache entry matches."""
        entry = None if path is None else self._cache.get((shapes, path))
        if path is None or entry is None or entry.addresses != addresses:
            return None
        self._cache.move_to_end((shapes, path))
        plan = entry.plan
        if plan is None:
            self._unload()
            self.linked.forget()
            plan = entry.plan = self._plan(entry.recording)
        self._unused_recordings = 0
        if self._loaded is not plan:
            self._unload()
            plan.load()
        # `_loaded` is set again only after the plan has succeeded: after an error, the cells hold partial results.
        self._loaded = None
        return plan

    def _plan(self, recording: Recording) -> Plan:
        """Make a plan; if memory runs out, drop all other plans and try again."""
        with collector_paused():
            try:
                return Plan(recording)
            except MemoryError:
                if not self.plans:
                    raise
            for entry in self._cache.values():
                entry.plan = None
            return Plan(recording)

    def _unload(self) -> None:
        self._last = LastCall()
        if self._loaded is not None:
            self._loaded.unload()
            self._loaded = None
