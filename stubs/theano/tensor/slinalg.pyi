from _typeshed import Incomplete
from theano.gof.op import Op

class Cholesky(Op):
    lower: bool
    destructive: bool
    on_error: Incomplete
    def __init__(self, lower: bool = ..., on_error: Incomplete = ...) -> None: ...

class CholeskyGrad(Op):
    lower: bool
    destructive: bool
    def __init__(self, lower: bool = ...) -> None: ...

class Eigvalsh(Op):
    lower: bool
    def __init__(self, lower: bool = ...) -> None: ...

class EigvalshGrad(Op):
    lower: bool
    tri0: Incomplete
    tri1: Incomplete
    def __init__(self, lower: bool = ...) -> None: ...

class Expm(Op): ...
class ExpmGrad(Op): ...

class Solve(Op):
    A_structure: str
    lower: bool
    overwrite_A: Incomplete
    overwrite_b: bool
    def __init__(
        self, A_structure: str = ..., lower: bool = ..., overwrite_A: Incomplete = ..., overwrite_b: bool = ...
    ) -> None: ...

cholesky: Cholesky
solve_lower_triangular: Solve

def __getattr__(name: str) -> Incomplete: ...
