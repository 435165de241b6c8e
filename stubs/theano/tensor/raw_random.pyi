from _typeshed import Incomplete
from theano.gof.op import Op

class RandomFunction(Op):
    fn: Incomplete
    outtype: Incomplete
    inplace: bool
    ndim_added: Incomplete
    exec_fn: Incomplete
    def _props(self) -> tuple[Incomplete, Incomplete, bool, Incomplete]: ...
    def __init__(
        self, fn: Incomplete, outtype: Incomplete, inplace: bool = ..., ndim_added: Incomplete = ...
    ) -> None: ...

def __getattr__(name: str) -> Incomplete: ...
