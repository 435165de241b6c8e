from _typeshed import Incomplete
from theano.gof.op import Op

class CpuContiguous(Op): ...

class CumOp(Op):
    axis: int | None
    mode: str
    def __init__(self, axis: int | None = ..., mode: str = ...) -> None: ...

class DiffOp(Op):
    n: int
    axis: int
    def __init__(self, n: int = ..., axis: int = ...) -> None: ...

class FillDiagonal(Op): ...
class FillDiagonalOffset(Op): ...

class RepeatOp(Op):
    axis: int | None
    def __init__(self, axis: int | None = ...) -> None: ...

class SearchsortedOp(Op):
    side: str
    def __init__(self, side: str = ...) -> None: ...

def __getattr__(name: str) -> Incomplete: ...
