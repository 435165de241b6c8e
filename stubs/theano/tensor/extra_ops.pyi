from _typeshed import Incomplete
from theano.gof.op import Op
from theano.gof.type import _Axis

class CpuContiguous(Op): ...

class CumOp(Op):
    axis: _Axis
    mode: str
    def __init__(self, axis: _Axis = ..., mode: str = ...) -> None: ...

class DiffOp(Op):
    n: int
    axis: _Axis
    def __init__(self, n: int = ..., axis: _Axis = ...) -> None: ...

class FillDiagonal(Op): ...
class FillDiagonalOffset(Op): ...

class RepeatOp(Op):
    axis: _Axis
    def __init__(self, axis: _Axis = ...) -> None: ...

class SearchsortedOp(Op):
    side: str
    def __init__(self, side: str = ...) -> None: ...

def __getattr__(name: str) -> Incomplete: ...
