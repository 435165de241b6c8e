from collections.abc import Callable
from typing import Any, TypeVar

from _typeshed import Incomplete
from theano.gof.graph import Variable
from theano.gof.link import Container
from theano.gof.type import Type

_F = TypeVar("_F", bound=Callable[..., Any])

class SharedVariable(Variable):
    container: Container
    default_update: Variable
    def __init__(
        self,
        name: str | None,
        type: Type,
        value: Any,
        strict: bool,
        allow_downcast: bool | None = ...,
        container: Container | None = ...,
    ) -> None: ...
    def get_value(self, borrow: bool = ..., return_internal_type: bool = ...) -> Any: ...
    def set_value(self, new_value: Any, borrow: bool = ...) -> None: ...

# The result is also a tensor, a scalar, or a random state, as the value says.
def shared(
    value: Any, name: str | None = ..., strict: bool = ..., allow_downcast: bool | None = ..., **kwargs: Any
) -> Any: ...
def shared_constructor(ctor: _F, remove: bool = ...) -> _F: ...
def __getattr__(name: str) -> Incomplete: ...
