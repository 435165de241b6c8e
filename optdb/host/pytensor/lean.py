"""Faster versions of PyTensor functions that build and rewrite graphs; their results are unchanged."""

from __future__ import annotations

import abc
import functools
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from pytensor.compile import sharedvalue
from pytensor.compile.mode import _ActiveModeGraphRewriter
from pytensor.configdefaults import config
from pytensor.graph import basic as graph_basic
from pytensor.graph import fg, utils
from pytensor.graph.basic import AtomicVariable
from pytensor.graph.destroyhandler import inplace_candidates
from pytensor.graph.features import Feature
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting import basic
from pytensor.graph.rewriting.basic import FromFunctionNodeRewriter, MergeFeature, MergeOptimizer
from pytensor.graph.type import HasShape
from pytensor.graph.utils import MetaObject, MetaType, Scratchpad
from pytensor.scalar import basic as scalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.rewriting.elemwise import FusionOptimizer, InplaceElemwiseOptimizer
from pytensor.tensor.rewriting.math import AlgebraicCanonizer
from pytensor.tensor.rewriting.shape import ShapeFeature
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.type import TensorType

from optdb.collector import growing
from optdb.host.api.graph import Apply, Variable
from optdb.host.api.patching import Patch, Wrapper, around
from optdb.host.stack_traces import StackTraces

#: Parts of the paths of PyTensor's own files.
_OWN_FILES = ("tensor/", "compile/", "graph/", "scalar/basic.py", "scan/", "sparse/", "typed_list/")
_traces = StackTraces(f"pytensor/{name}" for name in _OWN_FILES)
_stock_add_tag_trace = utils.add_tag_trace


def _add_tag_trace(thing: Any, user_line: int | None = None) -> Any:
    """Add a stack trace with at most `user_line` frames; the default is the flag ``traceback__limit``."""
    if config.traceback__compile_limit > 0:
        return _stock_add_tag_trace(thing, user_line)
    limit = config.traceback__limit if user_line is None else user_line
    return _traces.add(thing, sys._getframe(1), limit)


def _pairs_to_try(
    self: InplaceElemwiseOptimizer, fgraph: FunctionGraph, node: Apply, protected_inputs: Collection[Variable]
) -> list[tuple[tuple[int, Variable], tuple[int, Variable]]]:
    """Return pairs of an output and an input that the output may overwrite; pairs with equal types come first."""
    candidates = inplace_candidates(fgraph, node.inputs, protected_inputs=protected_inputs)
    numbered = [(node.inputs.index(inp), inp) for inp in candidates]
    pairs = [((i, out), at) for i, out in enumerate(node.outputs) for at in numbered if _have_one_shape(at[1], out)]
    return sorted(pairs, key=lambda pair: pair[0][1].type != pair[1][1].type)


def _have_one_shape(inp: Variable, out: Variable) -> bool:
    """Return whether an input has an output's dtype and shape, assuming that only axes of static length 1 broadcast."""
    if inp.type == out.type:
        return True
    return (
        type(inp.type) is type(out.type)
        and inp.type.dtype == out.type.dtype
        and inp.type.broadcastable == out.type.broadcastable
    )


def _by_inheritance(check: Callable[..., bool]) -> Callable[..., bool]:
    """Return `type.__instancecheck__`, which is written in C, or the slow `check` if a class has virtual subclasses."""
    return check if any(map(_may_have_virtual_subclasses, _subclasses(MetaObject))) else type.__instancecheck__


def _may_have_virtual_subclasses(cls: type) -> bool:
    registered = abc._get_dump(cls)[0]  # type: ignore[attr-defined]
    return bool(registered) or "__subclasshook__" in vars(cls)


def _subclasses(cls: type) -> Iterator[type]:
    yield cls
    for subclass in type.__subclasses__(cls):
        if isinstance(subclass, abc.ABCMeta):
            yield from _subclasses(subclass)


_FASTER_CHECK = Wrapper(MetaType, "__instancecheck__", _by_inheritance, "no class has virtual subclasses")


@around
def _restoring_the_check(register: Callable[..., Any], cls: Any, subclass: Any) -> Any:
    _FASTER_CHECK.uninstall()
    return register(cls, subclass)


ORDER = "_optdb_order"
#: Comparing up to this number of clients takes less time than searching for a variable with fewer clients.
_FEW_CLIENTS = 4
#: The maximum number of entries in a cache; a full cache is cleared.
_MOST_SCALAR_NODES = 4096


def _calling_listeners(execute: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(execute)
    def execute_callbacks(self: FunctionGraph, name: str, *args: Any, **kwargs: Any) -> None:
        state = vars(self)
        if ORDER in state and name != "on_validate":
            del state[ORDER]
        if state.get("profile"):  # PyTensor's method also records times
            return execute(self, name, *args, **kwargs)
        features = self._features
        kept = state.get("_optdb_listeners")
        if kept is None or kept[0] != features:
            kept = state["_optdb_listeners"] = _FeatureListeners((list(features), {}))
        listeners = kept[1].get(name)
        if listeners is None:
            listeners = kept[1][name] = _listening(features, name)
        for listen in listeners:
            listen(self, *args, **kwargs)
        return None

    return execute_callbacks


class _FeatureListeners(tuple):
    """A graph's features at the last look-up, and a map from events to the features' methods."""

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, ((None, {}),)  # a loaded or copied graph looks the methods up again


def _listening(features: list[Any], name: str) -> list[Callable[..., None]]:
    does_nothing = getattr(Feature, name, None)
    return [
        getattr(feature, name)
        for feature in features
        if name in type(feature)._feature_callbacks and getattr(type(feature), name) is not does_nothing
    ]


@around
def _where_something_is_scheduled(merge: Callable[..., Any], self: MergeOptimizer, fgraph: FunctionGraph) -> Any:
    if fgraph.merge_feature.scheduled or fgraph.profile:
        return merge(self, fgraph)
    return (0, 0.0, None, None, {}, 0, 0)


def _remembering_dtypes(upcast: Callable[..., str]) -> Callable[..., str]:
    @functools.cache
    def upcast_under(cast_policy: str, floatX: str, dtypes: tuple[str, ...]) -> str:  # noqa: N803  PyTensor's flag
        return upcast(*dtypes)

    @functools.wraps(upcast)
    def upcast_once(*dtypes: str) -> str:
        return upcast_under(config.cast_policy, config.floatX, dtypes)

    return upcast_once


def _note_input(
    self: MergeFeature, fgraph: FunctionGraph, node: Apply, i: int, r: Any, new_r: Any, reason: Any
) -> None:
    """Replace PyTensor's ``on_change_input``: schedule the merges that a changed input makes possible."""
    if node in self.nodes_seen:
        self.nodes_seen.discard(node)
        inputs, users = node.inputs, fgraph.clients[new_r]  # if `new_r` is new, it has few users
        _schedule_merges(self, node, users if len(users) <= len(inputs) else _few_clients(fgraph, inputs))
    if isinstance(new_r, AtomicVariable):
        self.process_atomic(fgraph, new_r)


def _process_node(self: MergeFeature, fgraph: FunctionGraph, node: Apply) -> None:
    """Replace PyTensor's ``process_node``: schedule merges of a node with equivalent nodes."""
    if node not in self.nodes_seen:
        _schedule_merges(self, node, _few_clients(fgraph, node.inputs) if node.inputs else [])


def _schedule_merges(self: MergeFeature, node: Apply, users: list[Any]) -> None:
    """Schedule merges of a node with equivalent nodes among `users`."""
    seen = self.nodes_seen
    inputs = node.inputs
    if inputs:
        candidates = [client for client, _ in users if client is not node and client in seen]
    else:
        candidates = [other for other in self.noinput_nodes if other is not node]
    merges = [
        [(out, other, "merge") for out, other in zip(node.outputs, candidate.outputs, strict=True)]
        for candidate in candidates
        if _are_the_same(inputs, candidate.inputs)
        and node.op == candidate.op
        and (not self.blacklist or (node, candidate) not in self.blacklist)
    ]
    if merges:
        self.scheduled.append(merges)
        return
    seen.add(node)
    if not inputs:
        self.noinput_nodes.add(node)


def _few_clients(fgraph: FunctionGraph, variables: list[Any]) -> list[Any]:
    """Return the clients of the first variable with few clients, or else of the variable with the fewest clients."""
    clients = fgraph.clients
    fewest = clients[variables[0]]
    for var in variables:
        if len(fewest) <= _FEW_CLIENTS:
            return fewest
        users = clients[var]
        if len(users) < len(fewest):
            fewest = users
    return fewest


def _toposort(graphs: Iterable[Any], blockers: Any = None) -> Iterator[Apply]:
    """Yield the nodes that compute `graphs`, as PyTensor's ``toposort`` does, but do not copy the set `blockers`."""
    known = blockers if isinstance(blockers, set) else set(blockers or ())
    computed: set[Any] = set()
    todo = list(graphs)
    while todo:
        var = todo.pop()
        node = var.owner
        if node is None or var in computed or var in known:
            continue
        missing = [inp for inp in node.inputs if inp.owner is not None and inp not in known and inp not in computed]
        if missing:
            todo.append(var)
            todo += missing
        else:
            yield node
            computed.update(node.outputs)


def _note_lengths(
    self: ShapeFeature, fgraph: FunctionGraph, node: Apply, i: int, r: Any, new_r: Any, reason: Any
) -> None:
    if r is new_r:
        return
    self._stale.add(node)
    if isinstance(r.type, HasShape):
        for client, _ in fgraph.clients.get(r, ()):
            if client.op.__class__ is Shape_i:
                self.scheduled[client] = new_r


def _are_the_same(variables: list[Any], others: list[Any]) -> bool:
    if len(variables) != len(others):
        return False
    for var, other in zip(variables, others):  # noqa: SIM110  a loop takes half as long as all() with a generator
        if var is not other:
            return False
    return True


#: Maps a dtype, a shape and the Python types of the lengths to the attributes set by ``TensorType.__init__``.
_type_states: dict[tuple[Any, ...], dict[str, Any]] = {}


def _remembering_types(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def init_once(self: TensorType, dtype: Any, shape: Any = None, name: Any = None, broadcastable: Any = None) -> None:
        if type(shape) is list:
            shape = tuple(shape)
        is_plain = type(self) is TensorType and type(dtype) is str and type(shape) is tuple and broadcastable is None
        if not is_plain or dtype == "floatX" or name is not None:
            return init(self, dtype, shape, name, broadcastable)
        key = (dtype, shape, *map(type, shape))  # False is not 0
        state = _type_states.get(key)
        if state is None:
            init(self, dtype, shape)
            if len(_type_states) > _MOST_SCALAR_NODES:
                _type_states.clear()
            _type_states[key] = dict(vars(self))
        else:
            vars(self).update(state)
        return None

    return init_once


def _by_attribute(name: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Return a decorator that makes a ``__str__`` method compute its text only if attribute `name` is not a string."""

    def named(text: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(text)
        def text_of(self: Any) -> str:
            found = vars(self).get(name)
            return found if type(found) is str else text(self)

        return text_of

    return named


class _Asking(threading.local):
    """Whether this thread needs only the output types of an elementwise op."""

    for_types = False


_asking = _Asking()
#: Maps a scalar op's id and its input dtypes to the op (kept alive) and its node.
_scalar_nodes: dict[tuple[Any, ...], tuple[Any, Any]] = {}


def _asking_for_types(get_output_info: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(get_output_info)
    def ask(self: Elemwise, *inputs: Any) -> Any:
        _asking.for_types = True
        try:
            return get_output_info(self, *inputs)
        finally:
            _asking.for_types = False

    return ask


def _remembering_scalar_nodes(make_scalar_node: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make_scalar_node)
    def remember(self: Elemwise, *inputs: Any) -> Any:
        if not _asking.for_types:
            return make_scalar_node(self, *inputs)
        _asking.for_types = False
        key = (id(self.scalar_op), config.floatX, config.cast_policy, *[var.type.dtype for var in inputs])
        entry = _scalar_nodes.get(key)
        if entry is None:
            if len(_scalar_nodes) > _MOST_SCALAR_NODES:
                _scalar_nodes.clear()
            entry = _scalar_nodes[key] = (self.scalar_op, make_scalar_node(self, *inputs))
        return entry[1]

    return remember


#: Maps a scalar op's id, and the dtypes of its inputs and which of them are equal, to the op (kept alive) and whether
#: the op has C code.
_have_c_code: dict[tuple[Any, ...], tuple[Any, bool]] = {}


def _remembering_c_code(supports_c_code: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(supports_c_code)
    def remember(self: scalar.ScalarOp, inputs: list[Any], outputs: list[Any]) -> bool:
        numbers: dict[Any, int] = {}
        repeats = [numbers.setdefault(var, len(numbers)) for var in inputs]
        dtypes = [var.dtype for var in inputs]
        key = (id(self), config.floatX, config.cast_policy, len(outputs), *dtypes, *repeats)
        entry = _have_c_code.get(key)
        if entry is None:
            if len(_have_c_code) > _MOST_SCALAR_NODES:
                _have_c_code.clear()
            entry = _have_c_code[key] = (self, supports_c_code(self, inputs, outputs))
        return entry[1]

    return remember


@around
def _without_removed_variables(fuse: Callable[..., Any], self: FusionOptimizer, fgraph: FunctionGraph) -> Any:
    clients, variables = fgraph.clients, fgraph.variables
    for var in [var for var, users in clients.items() if not users and var.owner and var not in variables]:
        del clients[var]
    return fuse(self, fgraph)


@around
def _without_collections(apply: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    with growing():
        return apply(self, *args, **kwargs)


PATCHES = [
    *(
        Patch(owner, "add_tag_trace", _add_tag_trace, "each line of a trace is read once")
        for owner in (utils, graph_basic, sharedvalue)
    ),
    Patch(Op, "add_tag_trace", staticmethod(_add_tag_trace), "each line of a trace is read once"),
    _FASTER_CHECK,
    Wrapper(MetaType, "register", _restoring_the_check, "virtual subclasses need PyTensor's own test"),
    Wrapper(FunctionGraph, "execute_callbacks", _calling_listeners, "callbacks that do nothing are not called"),
    Wrapper(MergeOptimizer, "apply", _where_something_is_scheduled, "most calls have nothing to merge"),
    Patch(MergeFeature, "process_node", _process_node, "the users of a variable are not sorted"),
    Patch(MergeFeature, "on_change_input", _note_input, "a new variable has few users, which are compared"),
    Patch(fg, "toposort", _toposort, "the variables of a graph are not copied for each new node"),
    Patch(basic, "toposort", _toposort, "no generator is created for each node"),
    Patch(MetaObject, "__ne__", object.__ne__, "with a method of Python, == of nodes takes eight times as long"),
    Patch(Scratchpad, "__getattribute__", object.__getattribute__, "a tag is read without calling Python"),
    Patch(Scratchpad, "__setattr__", object.__setattr__, "a tag is written without calling Python"),
    Patch(ShapeFeature, "on_change_input", _note_lengths, "classes are compared instead of using isinstance"),
    Wrapper(scalar, "upcast", _remembering_dtypes, "each sum of dtypes is computed once"),
    Wrapper(
        FromFunctionNodeRewriter,
        "__str__",
        _by_attribute("__name__"),
        "each new node is labelled with its rewriter's name",
    ),
    Wrapper(AlgebraicCanonizer, "__str__", _by_attribute("name"), "each new node is labelled with its rewriter's name"),
    Wrapper(TensorType, "__init__", _remembering_types, "a dtype and a shape are checked once"),
    Wrapper(Elemwise, "get_output_info", _asking_for_types, "only the dtypes of a scalar node are needed"),
    Wrapper(Elemwise, "make_scalar_node", _remembering_scalar_nodes, "each scalar node is created once for its dtypes"),
    Wrapper(scalar.ScalarOp, "supports_c_code", _remembering_c_code, "C code is generated once for its dtypes"),
    Wrapper(FusionOptimizer, "apply", _without_removed_variables, "removed variables cannot be fused"),
    Wrapper(
        _ActiveModeGraphRewriter, "apply", _without_collections, "a graph that only grows leaves no garbage to collect"
    ),
    Patch(
        InplaceElemwiseOptimizer,
        "filter_candidate_pairs",
        _pairs_to_try,
        "arrays of the same shape may have types with different static lengths",
    ),
]
