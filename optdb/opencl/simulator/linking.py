"""Makes what computes a device graph: Theano's virtual machine around plans, with what is final at the end.

A function may write the next values of shared variables over the present ones. Nodes that do so, and what depends on
them, run last: until then nothing is lost if a node raises, as one that is given an index out of range does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.kernels.programs import one_program
from optdb.host.destroy import destroyed_slots, viewed_slots
from optdb.host.graph import Apply, FunctionGraph, Variable
from optdb.host.linking import VM_Linker, infer_reuse_pattern
from optdb.opencl.planning.roles import on_device
from optdb.opencl.planning.sigint import commit_point, defer_sigint
from optdb.opencl.planning.updates import CellPairs, advance
from optdb.opencl.planning.vm import PlannedVM
from optdb.opencl.simulator.graph import DeviceGraph
from optdb.runtime.arrays import Array


@dataclass(frozen=True)
class Machine:
    """What computes a graph.

    Parameters
    ----------
    run : callable
        Computes, from what is in the cells of the inputs, and lets the next values be the present ones.
    inputs, outputs : sequence of list
        Cells of one element.
    updated : sequence of list
        The cells of inputs that have next values.
    """

    run: Callable[[], Any]
    inputs: Sequence[list[Any]]
    outputs: Sequence[list[Any]]
    updated: Sequence[list[Any]]

    def repeat(self, times: int) -> None:
        """Compute several times, from the same inputs."""
        if isinstance(self.run, PlannedVM) and all(isinstance(cell[0], Array) for cell in self.updated):
            self.run.repeat(times)
            return
        for _ in range(times):
            self.run()


def _advancing(compute: Callable[[], Any], updates: CellPairs) -> Callable[[], None]:
    """Return what computes, and gives the cells of inputs their next values."""

    def compute_and_advance() -> None:
        with defer_sigint():
            compute()
            commit_point()
            advance(updates)

    return compute_and_advance


def link(graph: DeviceGraph, cells: Sequence[list[Any]], state: set[Variable], c_thunks: bool = True) -> Machine:
    """Make what computes a graph.

    Parameters
    ----------
    graph : DeviceGraph
        The graph.
    cells : sequence of list
        One for each input.
    state : set of Variable
        The inputs whose values outlive a call.
    c_thunks : bool
        Whether what is left on the host may be compiled.
    """
    schedule = functools.partial(final_last, state=state)
    linker = VM_Linker(allow_gc=True, use_cloop=True, c_thunks=None if c_thunks else False, schedule=schedule)
    # What is kept must not be written to by the next call; what is returned is brought home before that.
    kept = infer_reuse_pattern(graph.fgraph, list(graph.updates.values()))
    linker = linker.accept(graph.fgraph, no_recycling=kept)
    linker.accept_var_updates(graph.updates)
    with one_program():
        run, _, containers = linker.make_thunk(input_storage=list(cells))
    outputs = [container.storage for container in containers]
    by_input = dict(zip(graph.fgraph.inputs, cells, strict=True))
    by_output = dict(zip(graph.fgraph.outputs, outputs, strict=True))
    updates = [(by_input[var], by_output[out]) for var, out in graph.updates.items()]
    if isinstance(run, PlannedVM):
        run.advancing = updates
    elif getattr(run, "need_update_inputs", True):
        run = _advancing(run, updates)
    return Machine(run, cells, outputs, [cell for cell, _ in updates])


def final_last(fgraph: FunctionGraph, state: set[Variable]) -> list[Apply]:
    """Return the nodes in an order in which those that overwrite some inputs come last, as far as that can be."""
    early, late = _by_finality(fgraph, state)
    return early + late


def endangered(fgraph: FunctionGraph, state: set[Variable]) -> bool:
    """Tell whether a node of the host, which may raise, cannot but come behind one that overwrites some inputs."""
    _, late = _by_finality(fgraph, state)
    return any(not all(map(on_device, node.outputs)) for node in late)


def _by_finality(fgraph: FunctionGraph, state: set[Variable]) -> tuple[list[Apply], list[Apply]]:
    """Return the nodes that come before some inputs are overwritten, and the others."""
    order = fgraph.toposort()
    before = fgraph.orderings()
    of_state = set(state)
    final: set[Apply] = set()
    for node in order:
        of_state.update(out for out, slot in viewed_slots(node) if node.inputs[slot] in of_state)
        overwrites = any(node.inputs[slot] in of_state for slot in destroyed_slots(node))
        behind = any(var.owner in final for var in node.inputs) or not final.isdisjoint(before.get(node, ()))
        if overwrites or behind:
            final.add(node)
    return [node for node in order if node not in final], [node for node in order if node in final]
