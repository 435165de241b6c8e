"""Which inputs of a function live on the device.

Arrays of floats do. Whole numbers, and numbers by themselves, are often what an op wants to know on the host: an index,
a length, a factor of a product. They go only where all that is done with them, until they are arrays of floats, can be
done on the device, and nothing asks for them on the host.
"""

from __future__ import annotations

from optdb.host import ops
from optdb.host.graph import FunctionGraph, Variable, clients, is_output
from optdb.host.lifting import is_host_array
from optdb.host.linking import DeepCopyOp
from optdb.host.random import mrg_uniform_base
from optdb.opencl.device import OPENCL
from optdb.runtime.context import Context

#: What may be done with a number on the device.
_ARITHMETIC = (ops.Elemwise, ops.DimShuffle, ops.CAReduce, DeepCopyOp)
#: What may be done with an array of whole numbers, besides.
_OF_ARRAYS = (ops.Subtensor, ops.Reshape, ops.Rebroadcast, ops.SpecifyShape, ops.Join, ops.Split, ops.MaxAndArgmax)


def placed_on_device(fgraph: FunctionGraph, context: Context) -> set[Variable]:
    """Return the inputs of a compiled function's graph that are to be on the device."""
    return {var for var in fgraph.inputs if _belongs(fgraph, var, context)}


def _belongs(fgraph: FunctionGraph, var: Variable, context: Context) -> bool:
    if not is_host_array(var) or context.unsupported_reason(var.type.dtype) is not None:
        return False
    users = [(user, i) for user, i in clients(fgraph, var) if not is_output(user)]
    # From the state of a generator, random numbers are drawn there.
    is_drawn_from = any(isinstance(user.op, mrg_uniform_base) and i == 0 for user, i in users)
    return _is_array_of_floats(var) or is_drawn_from or (bool(users) and _only_computed_with(fgraph, var))


def _only_computed_with(fgraph: FunctionGraph, var: Variable) -> bool:
    """Tell whether all that is made of a variable, until it is an array of floats, is made on the device."""
    seen, todo = {var}, [var]
    while todo:
        asked = todo.pop()
        allowed = (*_ARITHMETIC, *_OF_ARRAYS) if asked.type.ndim else _ARITHMETIC
        for user, i in clients(fgraph, asked):
            if is_output(user):
                continue
            if OPENCL.is_host_input(user.op, i) or not isinstance(user.op, allowed):
                return False
            # What may yet be wanted on the host.
            fresh = [out for out in user.outputs if out not in seen and not _is_array_of_floats(out)]
            seen.update(fresh)
            todo += fresh
    return True


def _is_array_of_floats(var: Variable) -> bool:
    return bool(var.type.ndim) and var.type.dtype.startswith(("float", "complex"))
