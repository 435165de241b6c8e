from _typeshed import Incomplete
from theano.gof.op import Op

class SparseBlockGemv(Op):
    inplace: bool
    def __init__(self, inplace: bool = ...) -> None: ...

class SparseBlockOuter(Op):
    inplace: bool
    def __init__(self, inplace: bool = ...) -> None: ...

def __getattr__(name: str) -> Incomplete: ...
