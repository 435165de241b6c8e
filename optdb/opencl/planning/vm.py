"""The virtual machine of functions on a device: it records, plans, and repeats.

It stands in for Theano's where a function has arrays on a device. Which branches a call takes is a guard, as shapes
are (``paths``): early conditions are looked at before a plan is chosen, others within it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from optdb.host.collector import collector_paused
from optdb.host.graph import Variable
from optdb.host.linking import VM
from optdb.host.logging import logger
from optdb.opencl.planning.budget import BudgetedRecorder
from optdb.opencl.planning.paths import Path, Round
from optdb.opencl.planning.plan import BranchTaken, Plan
from optdb.opencl.planning.rebinding import advances_from_external, bind_io, copied_inputs
from optdb.opencl.planning.recording import LinkedFunction, Recording, record
from optdb.opencl.planning.roles import on_device
from optdb.opencl.planning.sigint import commit_point, defer_sigint
from optdb.opencl.planning.updates import MAX_RECORDINGS, CellPairs, CommitUpdates, advance, commit
from optdb.runtime.command_buffers import kept_by_driver
from optdb.runtime.commands import CommandList, listening
from optdb.runtime.host_buffers import pays_zero_copy

#: So many plans are kept, for as many different shapes of inputs.
PLAN_CACHE_SIZE = 8
#: After so many recordings in a row, none of which was of use, a function computes without plans.
MAX_UNUSED_RECORDINGS = 16
#: So many plans are begun by a call whose branches are not those of the last one; then it computes without.
_MOST_GUESSES = 3
#: For so many combinations of shapes and early conditions it is remembered which path was taken.
_MOST_EXPECTED = 64
#: For fewer steps it does not pay to hand commands over to the driver.
_MIN_STEPS_FOR_DRIVER = 8


class PlannedVM(VM):
    """Runs a function, by a plan if there is one for inputs like those that it is given."""

    # The function's outputs are not the machine's to forget: they may be the plan's.
    allow_gc = False

    def __init__(self, linked: LinkedFunction) -> None:
        super().__init__(linked.nodes, linked.thunks, linked.clear_before)
        self.linked = linked
        #: Where this machine lets inputs have their next values.
        self.advancing: CellPairs = ()
        #: By the shapes of the inputs and the path of the call.
        self._known: OrderedDict[tuple, _Known] = OrderedDict()
        #: The path of the last call with inputs of some shapes, by these and the first round.
        self._expected: dict[tuple, Path] = {}
        self._loaded: Plan | None = None
        self._fruitless = 0
        self._inputs = [(var, linked.cells[var], on_device(var)) for var in linked.inputs]
        own = {id(cell) for cell in linked.clear_before}
        following = set(linked.updates.values())
        self._borrowed = frozenset(
            place
            for place, var in enumerate(linked.outputs)
            if var not in following and id(linked.cells[var]) not in own
        )

    @property
    def storage_map(self) -> dict[Variable, list[Any]]:
        """Nothing: the cells are the plans', not to be emptied by `Function.free`, nor shared with copies."""
        return {}

    @storage_map.setter
    def storage_map(self, cells: dict[Variable, list[Any]]) -> None:
        """Take what a linker says: the machine knows its cells already."""

    @property
    def plans(self) -> list[Plan]:
        """The plans that there are, that of the last call at the end."""
        return [known.plan for known in self._known.values() if known.plan is not None]

    def seen(self) -> list[dict[Variable, tuple[Any, Any]]]:
        """Return the inputs of recorded calls, the last one at the end: their shapes, and small values of the host."""
        return [
            {var: (shape, known.recording.given.get(var)) for var, shape in zip(self.linked.inputs, shapes)}
            for (shapes, _), known in self._known.items()
        ]

    @property
    def recorded(self) -> Recording | None:
        """What the function has done for inputs like those in its cells now; None if there were none."""
        known = self._known_now()
        return None if known is None else known.recording

    def __call__(self) -> None:
        """Compute the outputs from what is in the cells of the inputs."""
        for cell in self.pre_call_clear:
            cell[0] = None
        with defer_sigint():
            # Within another function, such as Scan around this one, that one is recorded.
            if listening() is not None or self._fruitless >= MAX_UNUSED_RECORDINGS:
                self._compute()
            else:
                shapes, places = self._key()
                first = self._first()
                path = self._expected_path(shapes, first)
                guesses = _MOST_GUESSES
                while (known := self._load(shapes, places, path)) is not None:
                    try:
                        known.plan.run()
                        break
                    except BranchTaken as taken:
                        known.plan.unload()
                        guesses -= 1
                        path = self._path_behind(taken.round, shapes) if guesses else None
                    except BaseException:
                        known.plan.unload()
                        raise
                if known is None:
                    path = self._record(shapes, places, first)
                else:
                    known.commit.run()
                    known.plan.release(self._borrowed)
                    self._loaded = known.plan
                if path is not None:
                    self._expected[shapes, first] = path
            commit_point()
            advance(self.advancing)

    def repeat(self, times: int) -> None:
        """Compute several times from what is in the cells of the inputs, with as little Python between as can be.

        The next values of the inputs are all on the device. The first steps are calls as any other, until there is a
        plan and the function finds its arrays where the plan has them. From then on a step is the plan's commands and
        those that commit the updates, in one call of the driver where that can keep them. The last step is again a call
        as any other, which leaves all as such a call does.

        A plan with nodes that compute in Python in each call is run by these calls alone.
        """
        while times:
            self()
            times -= 1
            commands = None if times < 2 else self._unconditional_commands(times - 1)
            if commands is None:
                continue
            kept = kept_by_driver(commands) if times > _MIN_STEPS_FOR_DRIVER else None
            for _ in range(times - 1):
                if kept is not None:
                    kept.enqueue()
                    continue
                with defer_sigint():
                    commit_point()
                    commands.enqueue()
            times = 1

    def _unconditional_commands(self, times: int) -> CommandList | None:
        """Return all that each of `times` calls enqueues, with inputs as they are now, if nothing changes between them.

        None if Python has to look at what such a call does.
        """
        known = self._known_now()
        is_ready = known is not None and known.plan is not None and known.plan is self._loaded
        if not is_ready or known.plan.expect(times):
            return None
        commands = known.plan.unconditional_commands()
        if commands is None:
            return None
        known.plan.restore_cells()
        updates = known.commit.commands()
        return None if updates is None else CommandList([*commands, *updates])

    def drop_external(self) -> None:
        """Release the external buffers of inputs and outputs."""
        for plan in self.plans:
            plan.drop_external()

    def _key(self) -> tuple[tuple, tuple]:
        """Return the shapes of the inputs, and the places of those on the device that are not rebound."""
        shapes, places = [], []
        rebindable = self.linked.rebindable_inputs
        for var, cell, here in self._inputs:
            value = cell[0]
            shapes.append(getattr(value, "shape", None))
            if here and var in rebindable and pays_zero_copy(value.nbytes):
                places.append(value.dtype)
            elif here:
                buffer = value.base_data
                places.append((None if buffer is None else buffer.int_ptr, value.offset, value.strides))
        return tuple(shapes), tuple(places)

    def _compute(self) -> None:
        """Compute without a plan."""
        self._unload()
        self.linked.branches.walk(self.linked.run, self._first())

    def _first(self) -> Round:
        """Look at the early conditions; return the first round."""
        return self.linked.branches.first(self.linked.run)

    def _expected_path(self, shapes: tuple, first: Round) -> Path | None:
        """Return the path that a call will probably take: that of the last one like it; None if there was none."""
        return self._expected.get((shapes, first)) if first.asked else self.linked.branches.path(first)

    def _path_behind(self, found: Round, shapes: tuple) -> Path | None:
        """Return a known path that goes on from a round as the conditions say that it asked for; None if none does."""
        following = self.linked.branches.next(found)
        paths = [path for known_shapes, path in reversed(self._known) if known_shapes == shapes]
        return next((path for path in paths if following in path.rounds), None)

    def _known_now(self) -> _Known | None:
        """Return what is known for inputs like those in the cells now."""
        shapes, places = self._key()
        known = self._known.get((shapes, self._expected_path(shapes, self._first())))
        return known if known is not None and known.places == places else None

    def _record(self, shapes: tuple, places: tuple, first: Round) -> Path | None:
        """Compute, and write down what is done; return the path that was taken, if it is to be planned."""
        self._unload()
        # What a recording keeps only grows, so the collector would find nothing, and that again and again.
        try:
            with collector_paused():
                recording = record(self.linked, BudgetedRecorder(self.linked), first)
        except MemoryError:
            self.linked.forget()
            raise
        recording.io = bind_io(recording)
        copied = copied_inputs(recording)
        self.linked.rebindable_inputs -= copied
        commit_point()
        commit(self.linked)
        path = recording.path
        # In the next call, inputs that are copied from now on are elsewhere.
        if copied or not path.can_begin_anew:
            return None
        self._known[shapes, path] = _Known(places, recording)
        if len(self._known) > PLAN_CACHE_SIZE:
            self._known.popitem(last=False)
        if len(self._expected) > _MOST_EXPECTED:
            self._expected.clear()
        self._fruitless += 1
        if self._fruitless == MAX_UNUSED_RECORDINGS:
            logger.info("A function's inputs differ from call to call; it goes on without plans.")
        return path

    def _load(self, shapes: tuple, places: tuple, path: Path | None) -> _Known | None:
        """Return what is known of a path, with its plan made and in the cells; None if nothing is that fits."""
        known = self._known.get((shapes, path))
        if known is None or known.places != places:
            return None
        self._known.move_to_end((shapes, path))
        if known.plan is None:
            self._unload()
            self.linked.forget()
            times = 0 if advances_from_external(known.recording) else MAX_RECORDINGS
            known.plan, known.commit = self._plan(known.recording), CommitUpdates(self.linked, times)
        self._fruitless = 0
        if self._loaded is not known.plan:
            self._unload()
            known.plan.load()
        # Not before it has succeeded: behind an error, the cells hold what it left there.
        self._loaded = None
        return known

    def _plan(self, recording: Recording) -> Plan:
        """Return a plan; if there is no room, the others go first."""
        with collector_paused():
            try:
                return Plan(recording)
            except MemoryError:
                if not self.plans:
                    raise
            for known in self._known.values():
                known.plan = known.commit = None
            return Plan(recording)

    def _unload(self) -> None:
        if self._loaded is not None:
            self._loaded.unload()
            self._loaded = None


@dataclass(eq=False)
class _Known:
    """What is known for inputs of some shapes: where arrays are, and a recording that may become a plan."""

    places: tuple
    recording: Recording
    plan: Plan | None = None
    commit: CommitUpdates | None = None
