"""Executes a function's graph on a device: uploads the inputs, runs the VM, and downloads the outputs.

Theano's own ``Function`` receives the arguments and calls an :class:`Executable`. A simulator keeps the values of
shared variables on the device (see ``state``), and the linker ``opencl`` keeps them on the host (see
``opencl_linker``). Nodes that overwrite shared arrays run last, and the VM holds back their commands until no node can
raise.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from optdb.codegen.kernels.programs import one_program
from optdb.host.api.config import as_when_compiling
from optdb.host.api.graph import FunctionGraph, Variable
from optdb.host.api.linking import VM_Linker, infer_reuse_pattern
from optdb.host.api.variables import SharedVariable, TensorType
from optdb.host.theano.functions.call_memory import CallMemory
from optdb.lifters.report import LiftReport
from optdb.opencl.linking.nodes import on_device
from optdb.opencl.linking.overwriting import endangered, final_last
from optdb.opencl.linking.planned_vm import CommittingVM, PlannedVM
from optdb.opencl.simulator.execution.graph import belongs_on_device, device_graph, overwritten_by_user
from optdb.opencl.simulator.execution.io_binding import Input, Output, ZeroCopyScope
from optdb.opencl.simulator.execution.state import Mirror, Shared, State
from optdb.runtime.arrays import Array
from optdb.runtime.sigint import defer_sigint
from optdb.runtime.timing import RunAhead


class Executable:
    """Runs a graph on a device with the values in Theano's storage cells, and has the interface of a Theano VM.

    Parameters
    ----------
    source : FunctionGraph
        The graph, optimized for the host; it is not modified.
    state : State
        The device and its shared variables; the function's new shared variables are added to it.
    inputs : sequence of (Variable, list)
        For each input of the graph, Theano's variable and its storage.
    updates : mapping
        Maps the index of an output to the index of the input that it updates; these outputs are the last ones.
    mutable : collection of Variable
        The inputs that may be overwritten.
    borrowed : sequence of bool
        For each of the caller's outputs, whether the next call may overwrite it.
    c_thunks : bool
        Whether nodes that stay on the host may be compiled.
    results : sequence of list
        The cells from which Theano reads the outputs, if it does not use the returned values.
    """

    # Theano's Function reads this attribute; the executable itself performs the updates.
    need_update_inputs = False

    def __init__(
        self,
        source: FunctionGraph,
        state: State,
        inputs: Sequence[tuple[Variable, list[Any]]],
        updates: dict[int, int],
        mutable: Collection[Variable],
        borrowed: Sequence[bool],
        c_thunks: bool,
        results: Sequence[list[Any]] = (),
    ) -> None:
        self._state = state
        self.turn = state.turn
        self.c_thunks = c_thunks
        self._results = results
        self.allow_gc = bool(results)
        #: Empty, since copies of the function cannot share intermediate values on the device.
        self.storage_map: dict[Variable, list[Any]] = {}
        updated = set(updates.values())
        of_user = overwritten_by_user(source)
        mutable = {*mutable, *of_user}
        bound = _bindings(source, state, inputs, updated, mutable, of_user)
        bindings = list(bound.values())
        #: The cells from which `run` reads the inputs; `run` stores the outputs in `output_cells`.
        self.input_cells = [
            storage if binding is None else binding.cell for binding, (_, storage) in zip(bindings, inputs, strict=True)
        ]
        with as_when_compiling():
            self._build(source, bound, updates, mutable, of_user)
        if isinstance(self.run, PlannedVM):
            scratch = zip(self.graph.fgraph.inputs, bindings, strict=True)
            self.run.linked.scratch = frozenset(
                var for var, binding in scratch if isinstance(binding, Shared) and binding.is_scratch
            )
        self.inputs: list[Input] = [binding for binding in bindings if isinstance(binding, Input)]
        self.outputs: list[Output] = [
            Output(cell, isinstance(var.type, TensorType), borrow)
            for cell, var, borrow in zip(self.output_cells, source.outputs, borrowed)
        ]
        self._updated_cells = [self.input_cells[number] for number in updated]
        self._padding = [None] * len(updates)
        self._shared = [binding for binding in bindings if isinstance(binding, Shared)]
        #: Shared variables whose value on the host changes in each call.
        self._changing = [binding for i in updated if isinstance(binding := bindings[i], Mirror)]
        #: Theano's storage cells for shared variables.
        self.shared_storages: list[list[Any]] = [
            storage for binding, (_, storage) in zip(bindings, inputs, strict=True) if not isinstance(binding, Input)
        ]
        #: The storage cells of shared variables that the VM reads directly from Theano's storage.
        self._storages = [storage for binding, (_, storage) in zip(bindings, inputs, strict=True) if binding is None]
        self._zero_copy = ZeroCopyScope(state.context, self)

    def _build(
        self,
        source: FunctionGraph,
        bound: dict[Variable, Shared | Input | None],
        updates: dict[int, int],
        mutable: set[Variable],
        of_user: set[Variable],
    ) -> None:
        """Create a graph and a VM that do not overwrite the only copy of a value before the end of a call."""
        placed = {var for var, binding in bound.items() if binding is not None and binding.placed}
        lasting = {var for var, binding in bound.items() if not isinstance(binding, Input)}
        updated = {source.inputs[number] for number in updates.values()}
        # Host values that outlive a call are replaced at its end, so that a call that raises changes none of them.
        exchanged = {var for var in (lasting | updated) - placed if not on_device(var)}
        # An uploaded argument belongs to the executable, which may overwrite it; an argument on the host belongs to the
        # caller.
        may_overwrite = ((mutable | (updated & placed)) - exchanged) | of_user
        only_here = {var for var in lasting - of_user if bound[var] is None or self._state.is_only_copy}
        last, narrowed = may_overwrite - only_here, False
        while True:
            self.graph = device_graph(source, self._state.context_name, placed, updates, may_overwrite)
            copies = dict(zip(source.inputs, self.graph.fgraph.inputs, strict=True))
            state = {copies[var] for var in lasting}
            overwritten = only_here & may_overwrite
            early = endangered(self.graph.fgraph, state) if overwritten else set()
            if early:
                # Do not overwrite values that later nodes still need, such as a network's running averages. Other
                # values, such as the network's weights, may still be overwritten.
                others = may_overwrite - {var for var in only_here if copies[var] in early}
                may_overwrite = last if narrowed or len(others) == len(may_overwrite) else others
                narrowed = True
                continue
            self.run, self.output_cells = _link(self.graph.fgraph, self.input_cells, state, self.c_thunks)
            # Theano's own VM enqueues each command immediately.
            if isinstance(self.run, PlannedVM) or not overwritten:
                return
            may_overwrite = last

    def __call__(
        self,
        output_subset: Sequence[int] | None = None,
        run: Callable[[], Any] | None = None,
        events: list[Any] | None = None,
    ) -> list[Any]:
        """Run the function and return all outputs, with None in place of next values.

        If the call raises, no variable gets its next value. `run` is called instead of the VM, between the upload of
        the inputs and the download of the outputs. `events` receives the events of copies; if it is None, the call
        waits for the copies.
        """
        scope = self._zero_copy if events is None else None
        with scope or contextlib.nullcontext():
            # After the VM's commit point, an interrupt waits until all next values are stored; a `run` of many steps
            # stops between two steps.
            if run is None:
                defer_sigint(self._compute, self.run, scope, events)
            else:
                self._compute(run, scope, events)
            outputs = [output.give(self._zero_copy if events is None else events) for output in self.outputs]
        for cell, value in zip(self._results, outputs):
            cell[0] = value
        return outputs + self._padding

    def _compute(self, run: Callable[[], Any], scope: ZeroCopyScope | None, events: list[Any] | None) -> None:
        """Call `run`, and store the next values that are kept on the host."""
        try:
            self.take(scope, events)
            present = [(cell, cell[0]) for cell in self._storages]
            run()
            following = self._next_host_values(present)
        except BaseException:
            for binding in self._changing:
                binding.lose()
            raise
        for binding, value in following:
            binding.update_host(value)
        for taken in self.inputs:
            taken.give_back()

    def _next_host_values(self, present: Sequence[tuple[list[Any], Any]]) -> list[tuple[Mirror, Any]]:
        """Return the next values for Theano's storage cells; on an error, undo the VM's writes."""
        try:
            return [(binding, binding.value()) for binding in self._changing]
        except BaseException:
            for cell, value in present:
                cell[0] = value
            raise

    def repeat(self, times: int) -> None:
        if isinstance(self.run, PlannedVM) and all(isinstance(cell[0], Array) for cell in self._updated_cells):
            self.run.repeat(times, RunAhead(self._state.context.queue))
            return
        for _ in range(times):
            self.run()

    @contextlib.contextmanager
    def sparing_arguments(self) -> Iterator[None]:
        """Preserve mutable arguments within the block, in which every call gets the same arguments."""
        for binding in self.inputs:
            binding.spares_argument = True
        try:
            yield
        finally:
            for binding in self.inputs:
                binding.spares_argument = False

    @property
    def arguments(self) -> list[Variable]:
        """The graph's inputs that each call uploads."""
        moved = {id(binding.cell) for binding in self.inputs if binding.placed}
        return [var for var, cell in zip(self.graph.fgraph.inputs, self.input_cells, strict=True) if id(cell) in moved]

    def take(self, scope: ZeroCopyScope | None = None, events: list[Any] | None = None) -> None:
        """Upload or lend the inputs; the parameters are those of `Input.take`."""
        self._state.begin_call(self._shared)
        for binding in self.inputs:
            binding.take(self._state.context, events, scope)

    def given(self) -> dict[Variable, Any]:
        """Upload the inputs and return the values of the graph's inputs, which must not be overwritten."""
        self.take()
        return dict(zip(self.graph.fgraph.inputs, (cell[0] for cell in self.input_cells), strict=True))

    def downloaded(self, values: Sequence[Any]) -> list[tuple[Variable, Array]]:
        """Return the outputs that a call downloads, as pairs of variables and values."""
        outputs = zip(self.graph.fgraph.outputs, values, self.outputs)
        return [(var, value) for var, value, output in outputs if output.on_host and isinstance(value, Array)]

    def call_memory(self) -> CallMemory | None:
        return self.run.call_memory() if isinstance(self.run, PlannedVM) else None

    def placement(self) -> tuple[FunctionGraph, list[LiftReport]]:
        """Return the executed graph, and the report on how the nodes of the host's graph were lifted."""
        return self.graph.fgraph, [self.graph.lifted]


def _bindings(
    source: FunctionGraph,
    state: State,
    inputs: Sequence[tuple[Variable, list[Any]]],
    updated: Collection[int],
    mutable: Collection[Variable],
    of_user: Collection[Variable],
) -> dict[Variable, Shared | Input | None]:
    """Map inputs to their bindings, or to None for inputs in Theano's storage; add new shared variables to `state`."""
    bindings: dict[Variable, Shared | Input | None] = {}
    for number, (var, (variable, storage)) in enumerate(zip(source.inputs, inputs, strict=True)):
        placed = belongs_on_device(source, var, state.context)
        if isinstance(variable, SharedVariable):
            binding = bindings[var] = state.add(variable, storage, placed)
            # A shared variable is either on the device or on the host for all functions with the same `State`.
            if var in of_user and binding is not None and binding.placed:
                raise NotImplementedError(
                    f"a user op overwrites the shared variable {var}, which another function of the simulator keeps on "
                    "the device.\n"
                    "The cure: pass its next value in updates=, or add this function to the simulator first"
                )
        else:
            bindings[var] = Input(var, storage, [None], placed, number in updated, var in mutable, var in of_user)
    return bindings


class _ExecutableLinker(VM_Linker):
    """A linker whose functions overwrite no state if a call raises."""

    keeps_state = True


def _link(
    fgraph: FunctionGraph, cells: Sequence[list[Any]], state: set[Variable], c_thunks: bool
) -> tuple[PlannedVM | CommittingVM, list[list[Any]]]:
    """Link a graph for a device; return the VM and the output cells. The inputs in `state` outlive a call."""
    updates = fgraph.update_mapping or {}
    following = {fgraph.inputs[number]: fgraph.outputs[index] for index, number in updates.items()}
    schedule = functools.partial(final_last, state=state)
    linker = _ExecutableLinker(allow_gc=True, use_cloop=True, c_thunks=None if c_thunks else False, schedule=schedule)
    # Keep the memory of next values and of results on the host, which may be arguments of the next call. Results on the
    # device are downloaded before the next call.
    kept = [*following.values(), *(var for var in fgraph.outputs if not on_device(var))]
    linker = linker.accept(fgraph, no_recycling=infer_reuse_pattern(fgraph, kept))
    linker.accept_var_updates(following)
    with one_program():
        run, _, containers = linker.make_thunk(input_storage=list(cells))
    return run, [container.storage for container in containers]
