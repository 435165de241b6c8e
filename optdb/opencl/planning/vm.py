"""The virtual machine of functions on a device: it records, plans, and repeats.

It stands in for Theano's where a function has arrays on a device. Which branches a call takes is a guard, as shapes
are (``paths``): early conditions are looked at before a plan is chosen, others within it.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from optdb.host.branching import IfElse
from optdb.host.collector import collector_paused
from optdb.host.compiled import take_turns
from optdb.host.config import config
from optdb.host.graph import Apply, FunctionGraph, Variable
from optdb.host.linking import HAS_C_LOOP, VM, VM_Linker
from optdb.host.logging import logger
from optdb.host.patching import PatchGroup, Wrapper
from optdb.opencl.planning.budget import Budget
from optdb.opencl.planning.moving import advances_from_moving, let_move
from optdb.opencl.planning.paths import Branches, Path, Round, chooser
from optdb.opencl.planning.plan import Plan
from optdb.opencl.planning.recording import Recording, Wiring, record
from optdb.opencl.planning.roles import on_device
from optdb.opencl.planning.steps import BranchTaken
from optdb.opencl.planning.thunks import PATCHES
from optdb.opencl.planning.updates import TRIES, Advance, advance
from optdb.opencl.planning.whole import begin, whole
from optdb.runtime.commands import listening
from optdb.runtime.lending import is_worth_it
from optdb.runtime.turns import Turn

#: So many plans are kept, for as many different shapes of inputs.
KEPT = 8
#: After so many recordings in a row, none of which was of use, a function computes without plans.
FRUITLESS = 16
#: So many plans are begun by a call whose branches are not those of the last one; then it computes without.
_MOST_GUESSES = 3
#: For so many combinations of shapes and early conditions it is remembered which path was taken.
_MOST_EXPECTED = 64


class PlannedVM(VM):
    """Runs a function, by a plan if there is one for inputs like those that it is given.

    Parameters
    ----------
    wiring : Wiring
        The function.
    """

    # The function's outputs are not the machine's to forget: they may be the plan's.
    allow_gc = False

    def __init__(self, wiring: Wiring) -> None:
        super().__init__(wiring.nodes, wiring.thunks, wiring.clear_before)
        self.wiring = wiring
        #: By the shapes of the inputs and the path of the call.
        self._known: OrderedDict[tuple, _Known] = OrderedDict()
        #: The path of the last call with inputs of some shapes, by these and the first round.
        self._expected: dict[tuple, Path] = {}
        self._loaded: Plan | None = None
        self._fruitless = 0
        self._inputs = [(var, wiring.cells[var], on_device(var)) for var in wiring.inputs]
        own = {id(cell) for cell in wiring.clear_before}
        following = set(wiring.updates.values())
        self._borrowed = frozenset(
            place
            for place, var in enumerate(wiring.outputs)
            if var not in following and id(wiring.cells[var]) not in own
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

    @property
    def ready(self) -> Plan | None:
        """The plan of the last call, if the next one will repeat it as inputs are now; None else."""
        known = self._known_now()
        return self._loaded if known is not None and known.plan is self._loaded else None

    def seen(self) -> list[dict[Variable, tuple[Any, Any]]]:
        """Return the inputs of recorded calls, the last one at the end: their shapes, and small values of the host."""
        return [
            {var: (shape, known.recording.given.get(var)) for var, shape in zip(self.wiring.inputs, shapes)}
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
        # Within another function, such as Scan around this one, that one is recorded.
        if listening() is not None or self._fruitless >= FRUITLESS:
            self._compute()
            return
        shapes, places = self._key()
        with whole():
            first = self._first()
            path = self._expected_path(shapes, first)
            for _ in range(_MOST_GUESSES):
                known = self._known.get((shapes, path))
                if known is None or known.places != places:
                    break
                self._known.move_to_end((shapes, path))
                try:
                    self._repeat(known)
                except BranchTaken as taken:
                    path = self._path_behind(taken.round, shapes)
                    continue
                self._expect(shapes, first, path)
                return
            self._expect(shapes, first, self._record(shapes, places, first))

    def let_go(self) -> None:
        """Hold on no longer to buffers of inputs that may move, and of outputs that others have a place for."""
        for plan in self.plans:
            plan.let_go()

    def clear_storage(self) -> None:
        """Forget all plans, and what they hold."""
        self._unload()
        self._known.clear()

    def _key(self) -> tuple[tuple, tuple]:
        """Return the shapes of the inputs, and the places of those that are on the device and do not move."""
        shapes, places = [], []
        movable = self.wiring.movable
        for var, cell, here in self._inputs:
            value = cell[0]
            shapes.append(getattr(value, "shape", None))
            if here and var in movable and is_worth_it(value.nbytes):
                places.append(value.dtype)
            elif here:
                buffer = value.base_data
                places.append((None if buffer is None else buffer.int_ptr, value.offset, value.strides))
        return tuple(shapes), tuple(places)

    def _compute(self) -> None:
        """Compute without a plan."""
        self._unload()
        self.wiring.walk(self.wiring.run, _nothing)

    def _first(self) -> Round | None:
        """Look at the early conditions; return the first round of a function with branches."""
        return None if self.wiring.branches is None else self.wiring.branches.first(self.wiring.run)

    def _expected_path(self, shapes: tuple, first: Round | None) -> Path | None:
        """Return the path that a call will probably take: that of the last one like it; None if there was none."""
        return self.wiring.path if first is None else self._expected.get((shapes, first))

    def _expect(self, shapes: tuple, first: Round | None, path: Path | None) -> None:
        if first is not None and path is not None:
            self._expected[shapes, first] = path

    def _path_behind(self, found: Round, shapes: tuple) -> Path | None:
        """Return a known path that goes on from a round as the conditions say that it asked for; None if none does."""
        following = self.wiring.branches.next(found)
        paths = [path for known_shapes, path in reversed(self._known) if known_shapes == shapes]
        return next((path for path in paths if following in path.rounds), None)

    def _known_now(self) -> _Known | None:
        """Return what is known for inputs like those in the cells now."""
        shapes, places = self._key()
        known = self._known.get((shapes, self._expected_path(shapes, self._first())))
        return known if known is not None and known.places == places else None

    def _record(self, shapes: tuple, places: tuple, first: Round | None) -> Path | None:
        """Compute, and write down what is done; return the path that was taken, if it is to be planned."""
        self._unload()
        # What a recording keeps only grows, so the collector would find nothing, and that again and again.
        try:
            with collector_paused():
                recording = record(self.wiring, Budget(self.wiring), first)
        except MemoryError:
            self.wiring.forget()
            raise
        is_of_use = let_move(self.wiring, recording)
        begin()
        advance(self.wiring)
        path = recording.path
        if not is_of_use or not path.can_begin_anew:
            return None
        self._known[shapes, path] = _Known(places, recording)
        if len(self._known) > KEPT:
            self._known.popitem(last=False)
        if len(self._expected) > _MOST_EXPECTED:
            self._expected.clear()
        self._fruitless += 1
        if self._fruitless == FRUITLESS:
            logger.info("A function's inputs differ from call to call; it goes on without plans.")
        return path

    def _repeat(self, known: _Known) -> None:
        if known.plan is None:
            self._unload()
            self.wiring.forget()
            tries = 0 if advances_from_moving(self.wiring, known.recording) else TRIES
            known.plan, known.advance = self._plan(known.recording), Advance(self.wiring, tries)
        self._fruitless = 0
        plan = known.plan
        if self._loaded is not plan:
            self._unload()
            plan.load()
        # Not before it has succeeded: behind an error, the cells hold what it left there.
        self._loaded = None
        try:
            plan.run()
        except BaseException:
            plan.unload()
            raise
        known.advance.run()
        plan.release(self._borrowed)
        self._loaded = plan

    def _plan(self, recording: Recording) -> Plan:
        """Return a plan; if there is no room, the others go first."""
        with collector_paused():
            try:
                return Plan(self.wiring, recording)
            except MemoryError:
                if not self.plans:
                    raise
            for known in self._known.values():
                known.plan = known.advance = None
            return Plan(self.wiring, recording)

    def _unload(self) -> None:
        if self._loaded is not None:
            self._loaded.unload()
            self._loaded = None


class _Known:
    """What is known for inputs of some shapes: where arrays are, and a recording that may become a plan."""

    def __init__(self, places: tuple, recording: Recording) -> None:
        self.places = places
        self.recording = recording
        self.plan: Plan | None = None
        self.advance: Advance | None = None


def _nothing(_: Any) -> None:
    """Do nothing behind a node."""


def _planning(make_vm: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make_vm)
    def make_planned_vm(
        self: VM_Linker,
        nodes: list,
        thunks: list,
        input_storage: list,
        output_storage: list,
        storage_map: dict[Variable, list[Any]],
        post_thunk_clear: Any,
        computed: Any,
        compute_map: Any,
        updated_vars: dict[Variable, Variable],
    ) -> Any:
        """Return the planned machine for a function that it suits, Theano's own for others."""
        turn = _turn(nodes)
        if turn is None or not _suits(self, nodes, thunks):
            self.use_cloop = self.use_cloop and HAS_C_LOOP
            machine = make_vm(
                *(self, nodes, thunks, input_storage, output_storage, storage_map),
                *(post_thunk_clear, computed, compute_map, updated_vars),
            )
        else:
            lasting = [storage_map[var] for var in self.no_recycling]
            wiring = Wiring(
                *(nodes, thunks, storage_map, lasting, post_thunk_clear),
                *(list(self.fgraph.inputs), list(self.fgraph.outputs), dict(updated_vars)),
            )
            machine = PlannedVM(_with_branches(wiring, storage_map, self.fgraph))
        machine.turn = turn
        return machine

    return make_planned_vm


def _with_branches(wiring: Wiring, storage_map: dict[Variable, list[Any]], fgraph: FunctionGraph) -> Wiring:
    """Let a wiring with lazy thunks, which are those of `ifelse`, choose among its branches before it computes."""
    if any(thunk.lazy for thunk in wiring.thunks):
        nodes = wiring.nodes
        wiring.branches = Branches(nodes, wiring.inputs, wiring.outputs, storage_map, fgraph.orderings())
        wiring.thunks = [
            chooser(node, storage_map) if thunk.lazy else thunk
            for node, thunk in zip(nodes, wiring.thunks, strict=True)
        ]
    return wiring


def _suits(linker: VM_Linker, nodes: list[Apply], thunks: list) -> bool:
    if not config.optdb.plans:
        return False
    watched = linker.callback is not None or linker.callback_input is not None or config.profile
    # Without a compiler, Theano's default is the loop in Python, which nobody has chosen then.
    chosen = linker.use_cloop or not HAS_C_LOOP
    if watched or linker.allow_partial_eval or not chosen:
        return False
    return all(isinstance(node.op, IfElse) for node, thunk in zip(nodes, thunks) if thunk.lazy)


def _turn(nodes: list[Apply]) -> Turn | None:
    """Return what a thread holds that calls a function of these nodes; None if none gives an array on a device."""
    here = (var for node in nodes for var in node.outputs if on_device(var))
    var = next(here, None)
    return None if var is None else var.type.context.turn


_patches = PatchGroup(
    "Plans",
    "from `import optdb.opencl` on",
    "optdb.opencl.planning.uninstall()",
    [Wrapper(VM_Linker, "make_vm", _planning, "functions with arrays on a device run by plans"), take_turns, *PATCHES],
)


def install() -> None:
    """Let functions on a device run by plans, those that are compiled from now on."""
    _patches.install()


def uninstall() -> None:
    """Let functions that are compiled from now on run without plans."""
    _patches.uninstall()
