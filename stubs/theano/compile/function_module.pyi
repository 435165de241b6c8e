from collections.abc import Callable, Sequence
from typing import Any, Protocol

from _typeshed import Incomplete
from theano.compile.io import SymbolicInput, SymbolicOutput
from theano.compile.mode import Mode
from theano.gof.fg import FunctionGraph
from theano.gof.graph import Variable
from theano.gof.link import Container
from theano.gof.toolbox import Feature

class Supervisor(Feature):
    protected: list[Variable]
    def __init__(self, protected: Sequence[Variable]) -> None: ...
    def validate(self, fgraph: FunctionGraph) -> bool: ...

class Function:
    fn: Any
    maker: FunctionMaker
    name: str | None
    input_storage: list[Container]
    output_storage: list[Container]
    indices: list[Any]
    outputs: list[SymbolicOutput]
    inv_finder: dict[Container, SymbolicInput]
    defaults: list[Any]
    unpack_single: bool
    return_none: bool
    trust_input: bool
    profile: Any
    nodes_with_inner_function: list[Any]
    output_keys: list[str] | None
    container: Any
    finder: Any
    def __init__(
        self,
        fn: Callable[[], Any] | None,
        input_storage: Sequence[Container],
        output_storage: Sequence[Container],
        indices: Any,
        outputs: Any,
        defaults: Any,
        unpack_single: bool,
        return_none: bool,
        output_keys: Any,
        maker: FunctionMaker,
        name: str | None = ...,
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __contains__(self, item: object) -> bool: ...
    def __getitem__(self, item: Any) -> Any: ...
    def copy(
        self,
        share_memory: bool = ...,
        swap: dict[Any, Any] | None = ...,
        delete_updates: bool = ...,
        name: str | None = ...,
        profile: Any = ...,
    ) -> Function: ...
    def free(self) -> None: ...
    def get_shared(self) -> list[Any]: ...
    def sync_shared(self) -> None: ...

class FunctionMaker:
    fgraph: FunctionGraph
    inputs: list[SymbolicInput]
    outputs: list[SymbolicOutput]
    expanded_inputs: list[SymbolicInput]
    mode: Mode
    linker: Any
    indices: list[Any]
    profile: Any
    name: str | None
    accept_inplace: bool
    function_builder: type[Function]
    on_unused_input: str | None
    output_keys: list[str] | None
    unpack_single: bool
    return_none: bool
    refeed: list[bool]
    # Set by optdb while functions are observed.
    observed: Any
    def __init__(self, inputs: Any, outputs: Any, mode: Any = ..., **kwargs: Any) -> None: ...
    @staticmethod
    def wrap_out(output: SymbolicOutput | Variable) -> SymbolicOutput: ...
    def create(
        self, input_storage: Any = ..., trustme: bool = ..., storage_map: dict[Variable, list[Any]] | None = ...
    ) -> Function: ...

def infer_reuse_pattern(fgraph: FunctionGraph, outputs_to_disown: Sequence[Variable]) -> list[Variable]: ...
def insert_deepcopy(
    fgraph: FunctionGraph, wrapped_inputs: Sequence[SymbolicInput], wrapped_outputs: Sequence[SymbolicOutput]
) -> None: ...

# A function with an attribute.
class _StdFgraph(Protocol):
    features: list[Any]
    def __call__(
        self,
        input_specs: Sequence[SymbolicInput],
        output_specs: Sequence[SymbolicOutput],
        accept_inplace: bool = ...,
    ) -> tuple[FunctionGraph, list[SymbolicOutput]]: ...

std_fgraph: _StdFgraph

def __getattr__(name: str) -> Incomplete: ...
