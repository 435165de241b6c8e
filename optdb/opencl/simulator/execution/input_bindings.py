"""Binds the inputs of a function, and decides which of them its machine may overwrite."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from optdb.host.api.graph import FunctionGraph, Variable
from optdb.host.api.variables import SharedVariable
from optdb.opencl.linking.nodes import on_device
from optdb.opencl.simulator.execution.graph import overwritten_by_user, placed_on_device
from optdb.opencl.simulator.execution.io_binding import Input
from optdb.opencl.simulator.execution.state import Shared, State


class InputBindings:
    """The bindings of a function's inputs; shared variables that are new are added to the state.

    Parameters
    ----------
    source : FunctionGraph
        The graph.
    state : State
        The device and its shared variables.
    inputs : sequence of (Variable, list)
        Theano's variable and its storage, a list of one element, for each input of the graph.
    updated : collection of int
        The indices of the inputs that have next values.
    mutable : collection of Variable
        The inputs that may be overwritten.
    """

    def __init__(
        self,
        source: FunctionGraph,
        state: State,
        inputs: Sequence[tuple[Variable, list[Any]]],
        updated: Collection[int],
        mutable: Collection[Variable],
    ) -> None:
        self._is_only_copy = state.is_only_copy
        self._of_user = of_user = overwritten_by_user(source)
        self._mutable = {*mutable, *of_user}
        self._updated = {source.inputs[number] for number in updated}
        uploaded = placed_on_device(source, state.context)
        self._bindings: dict[Variable, Shared | Input | None] = {
            var: state.add(variable, storage, var in uploaded)
            if isinstance(variable, SharedVariable)
            else Input(var, storage, [None], var in uploaded, number in updated, var in self._mutable, var in of_user)
            for number, (var, (variable, storage)) in enumerate(zip(source.inputs, inputs, strict=True))
        }
        #: The inputs on the device. All functions of the state share the location of a shared variable.
        self.placed = {var for var, binding in self._bindings.items() if binding is not None and binding.placed}
        #: The inputs whose values outlive a call.
        self.lasting = {var for var, binding in self._bindings.items() if not isinstance(binding, Input)}
        for var in of_user & self.placed:
            raise NotImplementedError(
                f"an op of the user overwrites the shared variable {var}, which another function of the simulator has "
                "on the device\nThe cure: give its next value by updates=, or add this function to the simulator first"
            )

    def __iter__(self) -> Iterator[Shared | Input | None]:
        """Iterate over the bindings in the order of the inputs; None if functions use Theano's storage itself."""
        return iter(self._bindings.values())

    @property
    def overwritable(self) -> set[Variable]:
        """The inputs that the machine may overwrite."""
        # The executable owns uploaded arguments; the caller owns those on the host.
        allowed = self._mutable | (self._updated & self.placed)
        # Host values that outlive a call are replaced at its end: a call that raises cannot leave them half changed.
        exchanged = {var for var in (self.lasting | self._updated) - self.placed if not on_device(var)}
        return (allowed - exchanged) | self._of_user

    @property
    def only_copies(self) -> set[Variable]:
        """The inputs that outlive a call and have no other copy; the host has a copy of all others."""
        here = {var for var, binding in self._bindings.items() if binding is None or self._is_only_copy}
        return (self.lasting & here) - self._of_user
