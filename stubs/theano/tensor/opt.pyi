from typing import Any

from _typeshed import Incomplete
from theano.gof.fg import FunctionGraph
from theano.gof.op import Op
from theano.gof.opt import FromFunctionLocalOptimizer, LocalOptimizer, Optimizer, TopoOptimizer

class Assert(Op):
    msg: str
    def __init__(self, msg: str = ...) -> None: ...

class Canonizer(LocalOptimizer):
    main: Incomplete
    inverse: Incomplete
    reciprocal: Incomplete
    calculate: Incomplete
    use_reciprocal: Incomplete
    external_simplifiers: Incomplete
    def __init__(
        self,
        main: Incomplete,
        inverse: Incomplete,
        reciprocal: Incomplete,
        calculate: Incomplete,
        use_reciprocal: Incomplete = ...,
    ) -> None: ...

class FusionOptimizer(Optimizer):
    optimizer: Incomplete
    def __init__(self, local_optimizer: Incomplete) -> None: ...

class InplaceElemwiseOptimizer(Optimizer):
    op: Incomplete
    def __init__(self, OP: Incomplete) -> None: ...
    def apply(self, fgraph: FunctionGraph) -> dict[str, Any]: ...

class MakeVector(Op):
    dtype: str
    def __init__(self, dtype: str = ...) -> None: ...

class ShapeFeature:
    lscalar_one: Incomplete
    shape_of: Incomplete
    scheduled: Incomplete
    shape_of_reverse_index: Incomplete

class ShapeOptimizer(Optimizer): ...

constant_folding: FromFunctionLocalOptimizer
local_add_canonizer: Canonizer
local_mul_canonizer: Canonizer
topo_constant_folding: TopoOptimizer

def __getattr__(name: str) -> Incomplete: ...
