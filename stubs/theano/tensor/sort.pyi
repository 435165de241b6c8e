from _typeshed import Incomplete
from theano.gof.op import Op

class ArgSortOp(Op):
    kind: str
    order: Incomplete
    def __init__(self, kind: str, order: Incomplete = ...) -> None: ...

class SortOp(Op):
    kind: str
    order: Incomplete
    def __init__(self, kind: str, order: Incomplete = ...) -> None: ...

class TopKOp(Op):
    axis: int
    sorted: bool
    return_values: bool
    return_indices: bool
    idx_dtype: str
    def __init__(
        self,
        axis: int = ...,
        sorted: bool = ...,
        idx_dtype: str = ...,
        return_values: bool = ...,
        return_indices: bool = ...,
    ) -> None: ...

def __getattr__(name: str) -> Incomplete: ...
