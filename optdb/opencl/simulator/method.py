"""One compiled function on the device, called as the original is.

Theano's own ``Function`` takes the arguments: names, defaults, checks and outputs are the original's. What it calls to
compute is a :class:`Method`: inputs go to the device, the machine runs, outputs come home.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from optdb.host.compiled import Function, function_like, has_c_thunks, updates_of
from optdb.host.config import as_when_compiling
from optdb.host.graph import Variable
from optdb.host.variables import TensorType
from optdb.opencl.registry import get_context
from optdb.opencl.simulator.future import Future
from optdb.opencl.simulator.graph import device_graph
from optdb.opencl.simulator.io_binding import Input, Output
from optdb.opencl.simulator.linking import endangered, link
from optdb.opencl.simulator.placing import placed_on_device
from optdb.opencl.simulator.progress import in_chunks
from optdb.opencl.simulator.state import Shared, State
from optdb.opencl.simulator.zero_copy import ZeroCopyScope
from optdb.runtime.timing import CommandRange


class Method:
    """A compiled function on the device.

    Parameters
    ----------
    function : Function
        Theano's; it is not changed.
    context_name : str
        The device.
    state : State
        The shared variables of the simulator; those of the function that are new are taken in.

    Attributes
    ----------
    call : Function
        Takes arguments as `function` does, and computes on the device.
    graph : DeviceGraph
        What is computed.
    arguments : list of Variable
        Inputs of it that each call brings to the device.
    tools : dict
        What others keep of the method as long as there is the method, each by the name of its module.
    """

    # As Theano's Function asks it of what computes: updates are done here, and outputs are not to be cleared.
    need_update_inputs = False
    allow_gc = False

    def __init__(self, function: Function, context_name: Hashable, state: State) -> None:
        source = function.maker.fgraph
        self.function = function
        self._context = get_context(context_name)
        self.call = function_like(function, self)
        specs = function.maker.inputs
        containers = function.input_storage
        placed = self._placed(state)
        updates = updates_of(function)
        shared = [
            state.add(spec.variable, container.storage, var in placed) if spec.shared else None
            for spec, container, var in zip(specs, containers, source.inputs, strict=True)
        ]
        # What is brought to the device is the method's own; on the host, it is the caller's.
        mutable = {
            var
            for var, spec in zip(source.inputs, specs, strict=True)
            if spec.mutable or (spec.update and var in placed)
        }
        with as_when_compiling():
            self.graph = device_graph(source, context_name, placed, updates, mutable)
            if endangered(self.graph.fgraph, self._kept(shared)):
                free = {var for var, one in zip(source.inputs, shared, strict=True) if one is None}
                self.graph = device_graph(source, context_name, placed, updates, mutable & free)
        own = [[None] if one is None else one.cell for one in shared]
        self.machine = link(self.graph, own, self._kept(shared), has_c_thunks(function))
        updated = set(updates.values())
        storages = [container.storage for container in self.call.input_storage]
        self._inputs = [
            Input(var, storages[number], own[number], var in placed, number in updated, specs[number].mutable)
            for number, var in enumerate(source.inputs)
            if shared[number] is None
        ]
        self.arguments = [
            new
            for old, new, one in zip(source.inputs, self.graph.fgraph.inputs, shared, strict=True)
            if one is None and old in placed
        ]
        returned = len(source.outputs) - len(updates)
        self._outputs = [
            Output(cell, isinstance(var.type, TensorType), spec.borrow)
            for cell, var, spec in zip(self.machine.outputs[:returned], source.outputs, function.maker.outputs)
        ]
        self._padding = [None] * len(updates)
        self._zero_copy = ZeroCopyScope(self._context, self.graph, self.machine, self._inputs, self._outputs)
        self.tools: dict[str, Any] = {}

    def __call__(self, output_subset: Sequence[int] | None = None) -> list[Any]:
        """Compute from what Theano's Function has put into its storage; return the outputs."""
        try:
            with self._zero_copy:
                self.take(self._zero_copy)
                self.machine.run()
                return self.give(self._zero_copy)
        except BaseException as error:
            self._restore_defaults(error)
            raise

    def call_n_times(
        self, times: int, args: tuple[Any, ...], kwargs: dict[str, Any], with_progress: bool = False
    ) -> Any:
        """Call the function several times with the same arguments; return what the last call does."""
        if any(one.may_change for one in self._inputs):

            def call_repeatedly(steps: int) -> Any:
                for _ in range(steps - 1):
                    self.call(*args, **kwargs)
                return self.call(*args, **kwargs)

            return in_chunks(call_repeatedly, times) if with_progress else call_repeatedly(times)
        return self.override_compute(functools.partial(self._several, times, with_progress), args, kwargs)

    def reset(self) -> None:
        """Let inputs that calls update have the values that Theano's function has for them."""
        theirs = [
            container.storage[0]
            for container, spec in zip(self.function.input_storage, self.function.maker.inputs, strict=True)
            if not spec.shared
        ]
        for one, value in zip(self._inputs, theirs, strict=True):
            if one.updated:
                one.value = copy.copy(value)

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future:
        """Call the function, and do not wait for the device."""
        events: list[Any] = []
        span = CommandRange(self._context)
        returned = self.override_compute(functools.partial(self._begun, events), args, kwargs)
        span.stop()
        return Future(returned, span, events)

    def _several(self, times: int, with_progress: bool = False) -> list[Any]:
        try:
            with self._zero_copy:
                self.take(self._zero_copy)
                if with_progress:
                    in_chunks(self._repeat_to_the_end, times)
                else:
                    self.machine.repeat(times)
                return self.give(self._zero_copy)
        except BaseException as error:
            self._restore_defaults(error)
            raise

    def _repeat_to_the_end(self, times: int) -> None:
        """Call several times, and wait for the device: progress is what is done, not what is in the queue."""
        self.machine.repeat(times)
        self._context.queue.finish()

    def _begun(self, events: list[Any]) -> list[Any]:
        try:
            for one in self._inputs:
                one.take(self._context, events)
            self.machine.run()
            outputs = [one.coming(events) for one in self._outputs]
            for one in self._inputs:
                one.give_back()
            return outputs + self._padding
        except BaseException as error:
            self._restore_defaults(error)
            raise

    def _restore_defaults(self, error: BaseException) -> None:
        """Forget arguments that stood in for defaults; behind an `Exception`, Theano's Function does it itself."""
        if isinstance(error, Exception):
            return
        for container, (_, refeed, value) in zip(self.call.input_storage, self.call.defaults, strict=True):
            if refeed:
                container.storage[0] = getattr(value, "storage", [value])[0]

    def override_compute(self, compute: Callable[[], list[Any]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take arguments as a call does, and let something else compute.

        Parameters
        ----------
        compute : callable
            Called when the arguments are in the storage; returns the graph's outputs. Those of them that are next
            values are left where they are.
        args, kwargs
            As the function takes them.
        """
        self.call.fn = _ComputeOverride(compute)
        try:
            return self.call(*args, **kwargs)
        finally:
            self.call.fn = self

    def given(self) -> dict[Variable, Any]:
        """Put the inputs on the device; return the values of the graph's inputs, which are nobody's to overwrite."""
        self.take()
        return {var: cell[0] for var, cell in zip(self.graph.fgraph.inputs, self.machine.inputs, strict=True)}

    def take(self, scope: ZeroCopyScope | None = None) -> None:
        """Put the inputs on the device, or lend them, as far as that can be."""
        for one in self._inputs:
            one.take(self._context, scope=scope)

    def give(self, scope: ZeroCopyScope) -> list[Any]:
        """Bring the outputs home, and the next values of inputs that Theano's Function keeps."""
        outputs = [one.give(scope) for one in self._outputs]
        for one in self._inputs:
            one.give_back()
        return outputs + self._padding

    def kept(self) -> list[Any]:
        """Return the values of inputs that calls change."""
        return [copy.copy(one.value) for one in self._inputs if one.updated]

    def keep(self, values: Sequence[Any]) -> None:
        """Take other values of inputs that calls change."""
        for one, value in zip([one for one in self._inputs if one.updated], values, strict=True):
            one.value = value

    def _kept(self, shared: Sequence[Shared | None]) -> set[Variable]:
        """Return the graph's inputs whose values outlive a call."""
        return {var for var, one in zip(self.graph.fgraph.inputs, shared, strict=True) if one is not None}

    def _placed(self, state: State) -> set[Variable]:
        """Return the inputs that are on the device: a shared variable is where it is for other functions."""
        maker = self.function.maker
        placed = placed_on_device(maker.fgraph, self._context)
        for var, container in zip(maker.fgraph.inputs, self.function.input_storage, strict=True):
            known = state.known(container.storage)
            if known is not None and isinstance(var.type, TensorType):
                (placed.discard if known.array_type is None else placed.add)(var)
        return placed


class _ComputeOverride:
    """What Theano's Function calls in a method's place."""

    need_update_inputs = False
    allow_gc = False

    def __init__(self, compute: Callable[[], list[Any]]) -> None:
        self._compute = compute

    def __call__(self, output_subset: Sequence[int] | None = None) -> list[Any]:
        return self._compute()
