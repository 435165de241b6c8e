from _typeshed import Incomplete
from theano.gof.op import Op

class BaseAdvancedIncSubtensor(Op):
    inplace: bool
    set_instead_of_inc: bool
    def __init__(self, inplace: bool = ..., set_instead_of_inc: bool = ...) -> None: ...

class AdvancedBooleanIncSubtensor(BaseAdvancedIncSubtensor): ...
class BaseAdvancedSubtensor(Op): ...
class AdvancedBooleanSubtensor(BaseAdvancedSubtensor): ...
class AdvancedIncSubtensor(BaseAdvancedIncSubtensor): ...

class AdvancedIncSubtensor1(Op):
    inplace: bool
    set_instead_of_inc: bool
    def __init__(self, inplace: bool = ..., set_instead_of_inc: bool = ...) -> None: ...

class AdvancedSubtensor(BaseAdvancedSubtensor): ...

class AdvancedSubtensor1(Op):
    sparse_grad: bool
    def __init__(self, sparse_grad: bool = ...) -> None: ...

class IncSubtensor(Op):
    idx_list: list[Incomplete]
    inplace: bool
    set_instead_of_inc: bool
    destroyhandler_tolerate_aliased: Incomplete
    def __init__(
        self,
        idx_list: list[Incomplete],
        inplace: bool = ...,
        set_instead_of_inc: bool = ...,
        destroyhandler_tolerate_aliased: Incomplete = ...,
    ) -> None: ...

class Subtensor(Op):
    idx_list: list[Incomplete]
    def __init__(self, idx_list: list[Incomplete]) -> None: ...

def __getattr__(name: str) -> Incomplete: ...
