from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from _typeshed import Incomplete
from theano.gof.fg import FunctionGraph
from theano.gof.graph import Apply, Constant, Variable
from theano.gof.op import PureOp

class Optimizer:
    name: str | None
    def apply(self, fgraph: FunctionGraph) -> Any: ...
    def optimize(self, fgraph: FunctionGraph, *args: Any, **kwargs: Any) -> Any: ...
    def add_requirements(self, fgraph: FunctionGraph) -> None: ...
    def print_summary(self, stream: Any, level: int = ..., depth: int = ...) -> None: ...
    def __call__(self, fgraph: FunctionGraph) -> Any: ...

class FromFunctionOptimizer(Optimizer):
    fn: Callable[[FunctionGraph], Any]
    def __init__(
        self, fn: Callable[[FunctionGraph], Any], requirements: Sequence[Callable[..., Any]] = ...
    ) -> None: ...

class SeqOptimizer(Optimizer, list[Optimizer]):
    pre_profile: Incomplete
    def __init__(self, *opts: Any, **kw: Any) -> None: ...

# A dict whose keys need no hash.
class _metadict:
    def __getitem__(self, item: Any) -> Any: ...
    def __setitem__(self, item: Any, value: Any) -> None: ...
    def get(self, item: Any, default: Any) -> Any: ...
    def discard(self, item: Any) -> None: ...

class MergeFeature:
    nodes_seen: Collection[Apply]
    seen_constants: set[int]
    const_sig: _metadict
    const_sig_inv: _metadict
    scheduled: list[Incomplete]
    blacklist: list[Incomplete]
    def on_attach(self, fgraph: FunctionGraph) -> None: ...
    def process_constant(self, fgraph: FunctionGraph, c: Constant) -> None: ...
    def process_node(self, fgraph: FunctionGraph, node: Apply) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class MergeOptimizer(Optimizer): ...

class LocalOptimizer:
    __name__: str
    def tracks(self) -> Sequence[Any] | None: ...
    def transform(self, node: Apply) -> Any: ...
    def add_requirements(self, fgraph: FunctionGraph) -> None: ...
    def print_summary(self, stream: Any, level: int = ..., depth: int = ...) -> None: ...

class FromFunctionLocalOptimizer(LocalOptimizer):
    def __init__(
        self,
        fn: Callable[[Apply], Any],
        tracks: Sequence[Any] | None = ...,
        requirements: Sequence[Callable[..., Any]] = ...,
    ) -> None: ...

class LocalOptGroup(LocalOptimizer):
    opts: tuple[LocalOptimizer, ...]
    apply_all_opts: bool
    def __init__(self, *optimizers: LocalOptimizer, **kwargs: Any) -> None: ...

class OpSub(LocalOptimizer): ...
class OpRemove(LocalOptimizer): ...

class PatternSub(LocalOptimizer):
    in_pattern: Incomplete
    out_pattern: Incomplete
    op: PureOp
    skip_identities_fn: Callable[..., Any] | None
    get_nodes: Callable[..., Any] | None
    pdb: bool
    def __init__(self, in_pattern: Any, out_pattern: Any, *args: Any, **kwargs: Any) -> None: ...

class NavigatorOptimizer(Optimizer):
    local_opt: LocalOptimizer
    failure_callback: Callable[..., None] | None
    ignore_newtrees: bool
    def __init__(
        self,
        local_opt: LocalOptimizer,
        ignore_newtrees: bool | str = ...,
        failure_callback: Callable[..., None] | None = ...,
    ) -> None: ...
    def process_node(self, fgraph: FunctionGraph, node: Apply, lopt: LocalOptimizer | None = ...) -> bool: ...
    def attach_updater(
        self,
        fgraph: FunctionGraph,
        importer: Callable[[Apply], None],
        pruner: Callable[[Apply], None] | None,
        chin: Callable[..., None] | None = ...,
        name: str | None = ...,
    ) -> Any: ...
    def detach_updater(self, fgraph: FunctionGraph, u: Any) -> None: ...
    @staticmethod
    def warn(exc: BaseException, nav: Any, repl_pairs: Any, local_opt: Any, node: Apply) -> None: ...
    @staticmethod
    def warn_inplace(exc: BaseException, nav: Any, repl_pairs: Any, local_opt: Any, node: Apply) -> None: ...
    @staticmethod
    def warn_ignore(exc: BaseException, nav: Any, repl_pairs: Any, local_opt: Any, node: Apply) -> None: ...

class TopoOptimizer(NavigatorOptimizer):
    order: str
    def apply(self, fgraph: FunctionGraph, start_from: Sequence[Variable] | None = ...) -> tuple[Any, ...]: ...
    def __init__(
        self,
        local_opt: LocalOptimizer,
        order: str = ...,
        ignore_newtrees: bool = ...,
        failure_callback: Callable[..., None] | None = ...,
    ) -> None: ...

class EquilibriumOptimizer(NavigatorOptimizer):
    local_optimizers_map: dict[Any, list[LocalOptimizer]]
    local_optimizers_all: list[LocalOptimizer]
    global_optimizers: list[Optimizer]
    final_optimizers: list[Optimizer]
    cleanup_optimizers: list[Optimizer]
    # None with no optimizer at all.
    max_use_ratio: float
    tracks_on_change_inputs: bool
    @staticmethod
    def print_profile(stream: Any, prof: tuple[Any, ...], level: int = ...) -> None: ...
    @staticmethod
    def merge_profile(prof1: tuple[Any, ...], prof2: tuple[Any, ...]) -> tuple[Any, ...]: ...
    def __init__(
        self,
        optimizers: Sequence[Any],
        failure_callback: Callable[..., None] | None = ...,
        ignore_newtrees: bool = ...,
        tracks_on_change_inputs: bool = ...,
        max_use_ratio: float | None = ...,
        final_optimizers: Sequence[Any] | None = ...,
        cleanup_optimizers: Sequence[Any] | None = ...,
    ) -> None: ...

def copy_stack_trace(from_var: Variable | Iterable[Variable], to_var: Variable | Iterable[Variable]) -> Any: ...
def local_optimizer(
    tracks: Sequence[Any] | None, inplace: bool = ..., requirements: Sequence[Callable[..., Any]] = ...
) -> Callable[[Callable[[Apply], Any]], FromFunctionLocalOptimizer]: ...
def __getattr__(name: str) -> Incomplete: ...
