"""Links a device graph to Theano's VM around plans; nodes that overwrite state run at the end.

A function may overwrite shared arrays on the device with their next values. Nodes that do, and their dependents, run
last, and the machine holds their commands back until none of them can raise. Only the commands of a node that reads
values of the device cannot be held back: a function with such a node among the last ones overwrites nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from optdb.codegen.kernels.programs import one_program
from optdb.host.api.graph import FunctionGraph, Variable
from optdb.host.api.linking import VM_Linker, infer_reuse_pattern
from optdb.opencl.linking.committing import CommittingVM
from optdb.opencl.linking.nodes import on_device
from optdb.opencl.linking.overwriting import final_last
from optdb.opencl.linking.planned_vm import PlannedVM


class _ExecutableLinker(VM_Linker):
    """The linker of a graph that keeps its state: a call that raises has overwritten no state."""

    keeps_state = True


def link(
    fgraph: FunctionGraph, cells: Sequence[list[Any]], state: set[Variable], c_thunks: bool
) -> tuple[PlannedVM | CommittingVM, list[list[Any]]]:
    """Link a graph for a device.

    Return the machine and the cells of the outputs. The machine computes from the values in the input cells and stores
    the next values there. The values of the inputs in `state` outlive a call.
    """
    updates = fgraph.update_mapping or {}
    following = {fgraph.inputs[number]: fgraph.outputs[index] for index, number in updates.items()}
    schedule = functools.partial(final_last, state=state)
    linker = _ExecutableLinker(allow_gc=True, use_cloop=True, c_thunks=None if c_thunks else False, schedule=schedule)
    # The next call must not overwrite next values, nor host results, which may be its arguments. Device results are
    # downloaded before the next call.
    kept = [*following.values(), *(var for var in fgraph.outputs if not on_device(var))]
    linker = linker.accept(fgraph, no_recycling=infer_reuse_pattern(fgraph, kept))
    linker.accept_var_updates(following)
    with one_program():
        run, _, containers = linker.make_thunk(input_storage=list(cells))
    return run, [container.storage for container in containers]
