"""The linker ``opencl``, whose functions run on a device while the host keeps the shared variables' values.

Before each call, values that have changed in Theano's storage are uploaded. After each call, the next values are stored
in Theano's storage. Unchanged values stay on the device, in one copy for all functions.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from optdb.host.api.destroy import Supervisor
from optdb.host.api.device_linker import DeviceLinker
from optdb.host.api.graph import FunctionGraph, Variable
from optdb.host.api.linking import graph_of
from optdb.host.api.variables import SharedVariable
from optdb.host.theano.functions.compiled import Container
from optdb.host.theano.functions.sharing import watch
from optdb.opencl.registry import context_of, get_context
from optdb.opencl.simulator.execution.executable import Executable
from optdb.opencl.simulator.execution.state import Mirror, Shared, State
from optdb.runtime.errors import ForkedContext
from optdb.runtime.library import check_process


class HostState(State):
    """The copies of shared variables on a device, which live as long as functions use them."""

    is_only_copy = False
    _kind = Mirror

    def __init__(self, context_name: Hashable) -> None:
        super().__init__(context_name)
        self._by_storage = weakref.WeakValueDictionary()
        # All functions share one lock, because functions that call each other could deadlock with separate locks.
        self.turn = self.context.turn

    def add(self, variable: SharedVariable, storage: list[Any], on_device: bool) -> Shared | None:
        """Return the copy of a shared variable; None if the variable is not placed on the device."""
        return super().add(variable, storage, on_device) if on_device else None

    def begin_call(self, used: Sequence[Shared]) -> None:
        for shared in used:
            shared.refresh()


def link_with_host_state(
    linker: DeviceLinker, input_storage: Sequence[list[Any]] | None, output_storage: Sequence[list[Any]] | None
) -> tuple[Callable[..., Any], list[Container], list[Container]]:
    """Link a function for the device; return the same values as a linker's `make_thunk`.

    In a forked process, the function raises `ForkedContext` only when called, because an error during unpickling would
    end a pool's worker process without reporting the error.
    """
    watch()
    fgraph = graph_of(linker)
    inputs = _containers(fgraph.inputs, input_storage)
    outputs = _containers(fgraph.outputs, output_storage)
    try:
        check_process()
    except ForkedContext as error:
        return _raising(str(error)), inputs, outputs
    updated = [number for number, var in enumerate(fgraph.inputs) if var in linker.updated_vars]
    returned = fgraph.outputs[: len(fgraph.outputs) - len(updated)]
    state = host_state_of(context_of(linker.device))
    with state.turn():
        compute = Executable(
            *(fgraph, state, [(var, container.storage) for var, container in zip(fgraph.inputs, inputs, strict=True)]),
            *(dict(enumerate(updated, start=len(returned))), _mutable(fgraph)),
            [var.owner is not None and var not in linker.no_recycling for var in returned],
            *(linker.c_thunks, [container.storage for container in outputs]),
        )
    return compute, inputs, outputs


def _raising(problem: str) -> Callable[..., Any]:
    def compute(*args: Any, **kwargs: Any) -> None:
        raise ForkedContext(problem)

    return compute


def host_state_of(context_name: Hashable) -> HostState:
    """Return the copies of shared variables on a device."""
    return get_context(context_name).kept.setdefault(__name__, HostState(context_name))


def _containers(variables: Sequence[Variable], storages: Sequence[list[Any]] | None) -> list[Container]:
    if storages is None:
        storages = [[None] for _ in variables]
    return [Container(var, storage) for var, storage in zip(variables, storages, strict=True)]


def _mutable(fgraph: FunctionGraph) -> set[Variable]:
    """Return the inputs that the user allows to be overwritten.

    A graph without a `Supervisor`, such as the graph of a `Function.copy`, allows no inputs to be overwritten.
    """
    supervisors = [feature for feature in fgraph._features if isinstance(feature, Supervisor)]
    if not supervisors:
        return set()
    return set(fgraph.inputs).difference(*(feature.protected for feature in supervisors))
