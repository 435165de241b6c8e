from _typeshed import Incomplete
from theano.gof.op import Op

class IfElse(Op):
    as_view: Incomplete
    gpu: Incomplete
    n_outs: Incomplete
    name: str | None
    def __init__(
        self, n_outs: Incomplete, as_view: Incomplete = ..., gpu: Incomplete = ..., name: str | None = ...
    ) -> None: ...

def __getattr__(name: str) -> Incomplete: ...
