"""Device ops that overwrite one of their inputs, where no other op needs that any more.

Both rewriters run after the lift, and the destroy handler has the last word: an op that it refuses
stays as it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from optdb.host.api.databases import compile_db
from optdb.host.api.graph import Apply, FunctionGraph, Op, Variable
from optdb.host.api.rewriters import FunctionNodeRewriter, TopoOptimizer
from optdb.host.api.testvalues import without_test_values
from optdb.host.functions.optimized import Plain
from optdb.opencl.ops.advanced import (
    OpenCLAdvancedBooleanIncSubtensor,
    OpenCLAdvancedIncSubtensor,
    OpenCLAdvancedIncSubtensor1,
)
from optdb.opencl.ops.blas import OpenCLGemm, OpenCLGemv, OpenCLGer
from optdb.opencl.ops.blocks import OpenCLSparseBlockGemv, OpenCLSparseBlockOuter
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.parts import OpenCLIncSubtensor
from optdb.opencl.ops.random import OpenCLMRGUniform
from optdb.topo.inplace import InplaceElemwise

_PRODUCTS = (OpenCLGemm, OpenCLGemv, OpenCLGer, OpenCLSparseBlockGemv, OpenCLSparseBlockOuter)
_CHANGES_OF_NAMED = (OpenCLAdvancedIncSubtensor1, OpenCLAdvancedIncSubtensor, OpenCLAdvancedBooleanIncSubtensor)

#: Class of ops that may write their result over the first input, to a function that switches this on or off.
_OVERWRITING: dict[type, Callable[[Any, bool], Op]] = {
    **dict.fromkeys(_PRODUCTS, lambda op, inplace: type(op)(inplace)),
    **dict.fromkeys(_CHANGES_OF_NAMED, lambda op, inplace: type(op)(inplace, op.set_instead_of_inc)),
    OpenCLIncSubtensor: lambda op, inplace: OpenCLIncSubtensor(
        op.idx_list, inplace, op.set_instead_of_inc, op.destroyhandler_tolerate_aliased
    ),
}

#: Functions that return the op that overwrites nothing, for graphs that run through the phases from the lift on again.
PLAIN: Plain = {
    **{kind: functools.partial(make, inplace=False) for kind, make in _OVERWRITING.items()},
    OpenCLElemwise: lambda op: OpenCLElemwise(op.scalar_op),
    OpenCLMRGUniform: lambda op: OpenCLMRGUniform(op.output_type, False),
}


@without_test_values()
def opencl_inplace(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Let an op write its result over its first input."""
    if getattr(node.op, "destroy_map", None):
        return None
    inplace = _OVERWRITING[type(node.op)](node.op, True)
    return inplace(*node.inputs, return_list=True)


#: Before Theano's own at 60: these know the device's ops by the classes that they extend, and offer some of the host's.
_POSITION = 59.9

_overwriting = FunctionNodeRewriter(opencl_inplace, tracks=list(_OVERWRITING))
_one_pass = TopoOptimizer(_overwriting, failure_callback=TopoOptimizer.warn_inplace)
compile_db().register("opencl_inplace", _one_pass, _POSITION, "fast_run", "inplace")
compile_db().register("opencl_inplace_elemwise", InplaceElemwise(OpenCLElemwise), 75.5, "fast_run", "inplace")
