from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from _typeshed import Incomplete
from theano.gof.fg import FunctionGraph
from theano.gof.graph import Apply, Variable
from theano.gof.type import Type
from typing_extensions import Self

class Container:
    storage: list[Any]
    type: Type
    readonly: bool
    strict: bool
    name: str | None
    data: Any
    value: Any
    required: bool
    implicit: bool
    provided: int
    allow_downcast: bool | None
    # Set by optdb where a device has a copy of the value.
    optdb_version: int
    optdb_written: bool
    def __init__(
        self,
        r: Variable | Type,
        storage: list[Any],
        readonly: bool = ...,
        strict: bool = ...,
        allow_downcast: bool | None = ...,
        name: str | None = ...,
    ) -> None: ...

class Linker:
    # Set by optdb where functions wait for their C code.
    tiered: bool
    # Set by optdb while a function is linked that has arrays on a device.
    needs_plans: bool
    allow_gc: bool | None
    fgraph: FunctionGraph | None
    schedule: Callable[[FunctionGraph], list[Apply]]
    def __init__(self, allow_gc: bool | None = ..., schedule: Callable[..., Any] | None = ...) -> None: ...
    def clone(self, allow_gc: bool | None = ...) -> Self: ...
    def accept(
        self, fgraph: FunctionGraph, no_recycling: Sequence[Variable] | None = ..., profile: Any = ...
    ) -> Any: ...
    def make_thunk(self, *args: Any, **kwargs: Any) -> Any: ...

class LocalLinker(Linker):
    # Set by accept.
    no_recycling: Sequence[Variable]
    def make_all(self, *args: Any, **kwargs: Any) -> Any: ...

class PerformLinker(LocalLinker): ...

def add_clear_storage(f: Any, computed: Any, storage_map: dict[Variable, list[Any]]) -> None: ...
def map_storage(
    fgraph: FunctionGraph,
    order: Sequence[Apply],
    input_storage: Any,
    output_storage: Any,
    storage_map: dict[Variable, list[Any]] | None = ...,
) -> tuple[list[list[Any]], list[list[Any]], dict[Variable, list[Any]]]: ...
def raise_with_op(
    node: Apply, thunk: Any = ..., exc_info: Any = ..., storage_map: dict[Variable, list[Any]] | None = ...
) -> NoReturn: ...
def __getattr__(name: str) -> Incomplete: ...
