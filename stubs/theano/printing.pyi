from _typeshed import Incomplete
from theano.gof.op import Op

class Print(Op):
    message: Incomplete
    attrs: Incomplete
    global_fn: Incomplete
    def __init__(self, message: Incomplete = ..., attrs: Incomplete = ..., global_fn: Incomplete = ...) -> None: ...

def __getattr__(name: str) -> Incomplete: ...
