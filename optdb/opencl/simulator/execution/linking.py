"""Links a device graph: Theano's virtual machine around plans, with nodes that overwrite state at the end.

A function may write the next values of shared arrays on the device over the present ones. Nodes that do so, and their
dependents, run last, and the machine holds their commands back until none of them can raise any more. Only a node that
needs values of the device cannot be held back: a function with such a node among the last ones overwrites nothing.
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
    """The linker of a graph whose nodes overwrite nothing that a call which raises must not change."""

    keeps_state = True


def link(
    fgraph: FunctionGraph, cells: Sequence[list[Any]], state: set[Variable], c_thunks: bool
) -> tuple[PlannedVM | CommittingVM, list[list[Any]]]:
    """Link a graph for a device.

    Return the machine, which computes from the values in the input cells and stores the next values there, and the
    cells of the outputs. The inputs in `state` have values that outlive a call.
    """
    updates = fgraph.update_mapping or {}
    following = {fgraph.inputs[number]: fgraph.outputs[index] for index, number in updates.items()}
    schedule = functools.partial(final_last, state=state)
    linker = _ExecutableLinker(allow_gc=True, use_cloop=True, c_thunks=None if c_thunks else False, schedule=schedule)
    # The next call must not write to next values, nor to results of the host, which may be its arguments. Results of
    # the device are downloaded before it.
    kept = [*following.values(), *(var for var in fgraph.outputs if not on_device(var))]
    linker = linker.accept(fgraph, no_recycling=infer_reuse_pattern(fgraph, kept))
    linker.accept_var_updates(following)
    with one_program():
        run, _, containers = linker.make_thunk(input_storage=list(cells))
    return run, [container.storage for container in containers]
