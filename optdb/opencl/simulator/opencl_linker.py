"""The linker ``opencl``: links a function to compute on a device, while the host keeps the shared variables' values.

A function for the host is lifted as a simulator's is. They differ in where shared values are kept: here, on the host.
After each call, Theano's storage gets the next values; before each call, values that were changed there are uploaded
again. Values that did not change stay on the device between calls, one copy for all functions.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Sequence
from typing import Any

from optdb.host.compiled import Container
from optdb.host.destroy import Supervisor
from optdb.host.device_linker import DeviceLinker
from optdb.host.graph import FunctionGraph, Variable
from optdb.host.sharing import unmarked_writer, version, watch
from optdb.host.variables import SharedVariable, TensorType
from optdb.lifters.report import LiftReport
from optdb.opencl.registry import context_of, get_context
from optdb.opencl.simulator.graph import device_graph
from optdb.opencl.simulator.io_binding import Input, Output
from optdb.opencl.simulator.linking import link
from optdb.opencl.simulator.placing import placed_on_device
from optdb.opencl.simulator.state import Shared, State
from optdb.opencl.simulator.zero_copy import ZeroCopyScope

__all__ = ["HostStateFunction", "link_with_host_state"]

#: Context to the copies there.
_mirrors: dict[Hashable, Mirrors] = {}
_making = threading.Lock()


class Mirror(Shared):
    """The copy on the device of a shared variable that is at home on the host."""

    def from_theano(self) -> None:
        """Take Theano's value."""
        self._version = version(self.variable.container)
        super().from_theano()

    def refresh(self) -> None:
        """Take Theano's value, unless it is certain that it is still the same."""
        container = self.variable.container
        if not self.in_step or self._version != version(container) or unmarked_writer(container):
            self.from_theano()

    def bring_home(self, value: Any) -> None:
        """Let Theano have the value, which is that on the device."""
        self._storage[0] = self._seen = value

    def lose(self) -> None:
        """Note that what is on the device is of no use."""
        self._version = -1


class Mirrors(State):
    """The copies on one device, each as long as there is a function that uses it."""

    def __init__(self, context_name: Hashable) -> None:
        super().__init__(context_name)
        self._known = weakref.WeakValueDictionary()
        self.turn = get_context(context_name).turn

    def _make(self, variable: Variable, storage: list[Any], on_device: bool) -> Mirror:
        return Mirror(variable, storage, self._type_of(variable, on_device))


class HostStateFunction:
    """Computes a graph on the device, from what is in Theano's storages; called as a machine of Theano's is.

    Parameters
    ----------
    source : FunctionGraph
        Optimized for the host.
    context_name : str
        The device.
    storages : sequence of list
        One for each input, of one element.
    updated : sequence of Variable
        The inputs whose next values are the last outputs, in this order.
    results : sequence of list
        Where Theano finds the outputs, one for each; next values are not among them.
    own : set of Variable
        The outputs that the next call may not overwrite.
    c_thunks : bool
        Whether what is left on the host may be compiled.
    """

    # As Theano's Function asks it of what computes: updates are done here, and outputs are not kept.
    need_update_inputs = False
    allow_gc = True

    def __init__(
        self,
        source: FunctionGraph,
        context_name: Hashable,
        storages: Sequence[list[Any]],
        updated: Sequence[Variable],
        results: Sequence[list[Any]],
        own: set[Variable],
        c_thunks: bool = True,
    ) -> None:
        self._context = get_context(context_name)
        self._mirrors = mirrors_of(context_name)
        placed = placed_on_device(source, self._context)
        returned = len(source.outputs) - len(updated)
        numbers = [source.inputs.index(var) for var in updated]
        #: Held by whoever calls the function, and by whoever else uses the copies of its shared variables.
        self.turn = self._mirrors.turn
        with self.turn:
            shared = [
                self._mirrors.add(var, storage, True) if var in placed and isinstance(var, SharedVariable) else None
                for var, storage in zip(source.inputs, storages, strict=True)
            ]
            updates = dict(enumerate(numbers, start=returned))
            mutable = _mutable(source)
            # What is brought to the device may be overwritten there; on the host, it is the caller's.
            own_there = {var for var in updated if var in placed}
            self.graph = device_graph(source, context_name, placed, updates, mutable | own_there)
            given = [not isinstance(var, SharedVariable) for var in source.inputs]
            cells = [
                one.cell if one is not None else [None] if is_given else storage
                for one, is_given, storage in zip(shared, given, storages, strict=True)
            ]
            kept = {var for var, is_given in zip(self.graph.fgraph.inputs, given, strict=True) if not is_given}
            self.machine = link(self.graph, cells, kept, c_thunks)
        self._shared = [one for one in shared if one is not None]
        self._changing = [shared[number] for number in numbers if shared[number] is not None]
        self._inputs = [
            Input(var, storages[number], cells[number], var in placed, number in numbers, var in mutable)
            for number, var in enumerate(source.inputs)
            if given[number]
        ]
        self._outputs = [
            Output(cell, isinstance(var.type, TensorType), var.owner is not None and var not in own)
            for cell, var in zip(self.machine.outputs, source.outputs[:returned])
        ]
        self._zero_copy = ZeroCopyScope(self._context, self.graph, self.machine, self._inputs, self._outputs)
        self._results = results
        self._padding = [None] * len(updated)

    def placement(self) -> tuple[FunctionGraph, list[LiftReport]]:
        """Return the graph that is computed, and what the lift did to the nodes of the host's graph."""
        return self.graph.fgraph, [self.graph.lifted]

    @property
    def storage_map(self) -> dict[Variable, list[Any]]:
        """Nothing: values between are on the device, and cannot be shared with copies of the function."""
        return {}

    def __call__(self, output_subset: Sequence[int] | None = None) -> list[Any]:
        """Compute; return the outputs."""
        with self.turn:
            for one in self._shared:
                one.refresh()
            try:
                with self._zero_copy:
                    for one in self._inputs:
                        one.take(self._context, scope=self._zero_copy)
                    self.machine.run()
                    outputs = [one.give(self._zero_copy) for one in self._outputs]
                    following = [one.value() for one in self._changing]
            except BaseException:
                for one in self._changing:
                    one.lose()
                raise
            # Only now, so that all of them are those of one call.
            for one, value in zip(self._changing, following):
                one.bring_home(value)
            for one in self._inputs:
                one.give_back()
        for cell, value in zip(self._results, outputs):
            cell[0] = value
        return outputs + self._padding


def link_with_host_state(
    linker: DeviceLinker, input_storage: Sequence[list[Any]] | None, output_storage: Sequence[list[Any]] | None
) -> tuple[HostStateFunction, list[Container], list[Container]]:
    """Link a function for the device, as `make_thunk` of a linker does.

    Raises
    ------
    optdb.runtime.errors.DeviceError
        If there is no such device.
    """
    watch()
    fgraph = linker.fgraph
    inputs = _containers(fgraph.inputs, input_storage)
    outputs = _containers(fgraph.outputs, output_storage)
    updated = [var for var in fgraph.inputs if var in linker.updated_vars]
    storages = [container.storage for container in inputs]
    context_name = context_of(linker.device)
    results = [container.storage for container in outputs]
    own = set(linker.no_recycling)
    compute = HostStateFunction(fgraph, context_name, storages, updated, results, own, linker.c_thunks)
    return compute, inputs, outputs


def mirrors_of(context_name: Hashable) -> Mirrors:
    """Return the copies on a device."""
    with _making:
        if context_name not in _mirrors:
            _mirrors[context_name] = Mirrors(context_name)
        return _mirrors[context_name]


def _containers(variables: Sequence[Variable], storages: Sequence[list[Any]] | None) -> list[Container]:
    if storages is None:
        storages = [[None] for _ in variables]
    return [Container(var, storage) for var, storage in zip(variables, storages, strict=True)]


def _mutable(fgraph: FunctionGraph) -> set[Variable]:
    """Return the inputs that the user lets be overwritten; none where nobody says, as in `Function.copy`."""
    supervisors = [feature for feature in fgraph._features if isinstance(feature, Supervisor)]
    if not supervisors:
        return set()
    return set(fgraph.inputs).difference(*(feature.protected for feature in supervisors))
