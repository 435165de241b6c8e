from _typeshed import Incomplete
from theano.gof.op import Op

class AllocDiag(Op): ...
class Det(Op): ...
class Eig(Op): ...

class Eigh(Eig):
    UPLO: Incomplete
    def __init__(self, UPLO: Incomplete = ...) -> None: ...

class EighGrad(Op):
    UPLO: Incomplete
    tri0: Incomplete
    tri1: Incomplete
    def __init__(self, UPLO: Incomplete = ...) -> None: ...

class MatrixInverse(Op):
    def __init__(self) -> None: ...

class MatrixPinv(Op):
    def __init__(self) -> None: ...

class QRFull(Op):
    mode: str
    def __init__(self, mode: str) -> None: ...

class QRIncomplete(Op):
    mode: str
    def __init__(self, mode: str) -> None: ...

class SVD(Op):
    full_matrices: bool
    compute_uv: bool
    def __init__(self, full_matrices: bool = ..., compute_uv: bool = ...) -> None: ...

class TensorInv(Op):
    ind: Incomplete
    def __init__(self, ind: Incomplete = ...) -> None: ...

class TensorSolve(Op):
    axes: tuple[int, ...]
    def __init__(self, axes: tuple[int, ...] | None = ...) -> None: ...

class lstsq(Op): ...

def __getattr__(name: str) -> Incomplete: ...
