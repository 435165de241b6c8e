from _typeshed import Incomplete
from theano.gof.graph import Constant
from theano.gof.type import Type

class SliceConstant(Constant):
    def __init__(self, type: Incomplete, data: Incomplete, name: str | None = ...) -> None: ...

class SliceType(Type): ...

slicetype: SliceType

def __getattr__(name: str) -> Incomplete: ...
