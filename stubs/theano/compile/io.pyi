from typing import Any

from _typeshed import Incomplete
from theano.gof.graph import Variable

class SymbolicInput:
    variable: Variable
    name: str | None
    update: Variable | None
    mutable: bool
    strict: bool
    autoname: bool
    allow_downcast: bool | None
    implicit: bool
    borrow: bool
    # Set by pfunc for the inputs of shared variables.
    shared: bool
    value: Any
    def __init__(
        self, variable: Variable, name: str | None = ..., update: Variable | None = ..., **kwargs: Any
    ) -> None: ...

class In(SymbolicInput): ...

class SymbolicOutput:
    variable: Variable
    borrow: bool
    def __init__(self, variable: Variable, borrow: bool = ...) -> None: ...

Out = SymbolicOutput

def __getattr__(name: str) -> Incomplete: ...
