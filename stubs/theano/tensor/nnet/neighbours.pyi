from _typeshed import Incomplete
from theano.gof.op import Op

class Images2Neibs(Op):
    mode: str
    def __init__(self, mode: str = ...) -> None: ...

def __getattr__(name: str) -> Incomplete: ...
