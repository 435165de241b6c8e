"""Makes C thunks. Nodes with the same signature share their code, key and module."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from theano.gof.cc import CLinker, _CThunk
from theano.gof.fg import FunctionGraph
from theano.gof.graph import Apply, NoParams, Variable
from theano.gof.utils import MethodNotDefined

from optdb.host.theano.clinker.cache import Wanted, module_cache
from optdb.host.theano.clinker.signatures import flags_in_force, signature
from optdb.host.theano.clinker.units import module_of

NoCode = (NotImplementedError, MethodNotDefined)

MAX_REMEMBERED = 20_000


class Linked:
    """The C code that all nodes with one signature share; it does not reuse the storage of `no_recycling` outputs."""

    def __init__(self, node: Apply, no_recycling: Sequence[Variable]) -> None:
        self.no_code: Exception | None = None
        self.wanted: Wanted | None = None
        self._module: Any = None
        self._takes_params = False
        self._make(_linker_of(node, no_recycling))

    def _make(self, linker: CLinker) -> None:
        try:
            key = linker.cmodule_key()
        except KeyError:
            key = None
        if key is None:
            return
        for node in linker.node_order:
            node.op.prepare_node(node, None, None, "c")
        self._takes_params = bool(linker.orphans)
        try:
            self.wanted = Wanted(key, module_of(linker))
        except NoCode as error:
            # Create a new exception, because the traceback of `error` would keep the function and its storage alive.
            self.no_code = type(error)(*error.args)

    @property
    def is_keyed(self) -> bool:
        """Whether Theano has a key for the code; code without a key is compiled for each node."""
        return self.wanted is not None or self._module is not None or self.no_code is not None

    def thunk(
        self, node: Apply, no_recycling: Sequence[Variable], inputs: list[list[Any]], outputs: list[list[Any]]
    ) -> _CThunk:
        """Make a thunk for a node with this signature; `inputs` and `outputs` are the node's storage."""
        if self.no_code is not None:
            raise type(self.no_code)(*self.no_code.args)
        wanted = self.wanted  # `wanted` is None once a thread has loaded the module
        if self._module is None:
            assert wanted is not None, "the caller asks for code that has a key"
            self._module = module_cache().module(wanted, lambda: _linker_of(node, no_recycling))
            self.wanted = None  # free the source code, which is long
        error: list[Any] = [None, None, None]
        first = {var: index for index, var in reversed(list(enumerate(node.inputs)))}
        storage = [cell for index, cell in enumerate(inputs) if first[node.inputs[index]] == index]
        capsule = self._module.instantiate(error, *storage, *outputs, *self._params(node))
        return _SharedCThunk(capsule, node, no_recycling, error, self._module)

    def _params(self, node: Apply) -> list[list[Any]]:
        """Return the storage of an op's params, which its C code takes after the inputs."""
        if not self._takes_params:
            return []
        params = node.run_params()
        return [] if params is NoParams else [[node.params_type.filter(params)]]


class _SharedCThunk(_CThunk):
    """A C thunk that looks up which part of its code has failed, but only after a failure."""

    def __init__(
        self, capsule: Any, node: Apply, no_recycling: Sequence[Variable], error: list[Any], module: Any
    ) -> None:
        super().__init__(capsule, None, None, error, module)
        self._node = node
        self._no_recycling = no_recycling
        self.nodes: list[Apply] = []

    def find_task(self, failure_code: int) -> Any:
        linker = _linker_of(self._node, self._no_recycling)
        self.init_tasks, self.tasks = linker.get_init_tasks()
        self.nodes = linker.node_order
        return super().find_task(failure_code)


class NodeLinker:
    """Provides the C code of nodes, and caches the code for other nodes and functions of this process."""

    def __init__(self) -> None:
        self._by_flags: dict[Hashable, dict[Hashable, Linked]] = {}
        self._cached: dict[Hashable, Linked] = {}

    def begin(self) -> None:
        """Select the cache for the current flags."""
        if sum(map(len, self._by_flags.values())) > MAX_REMEMBERED:
            self._by_flags.clear()
        self._cached = self._by_flags.setdefault(flags_in_force(), {})

    def linked(self, node: Apply, no_recycling: Sequence[Variable]) -> Linked:
        """Return the C code for a node's signature."""
        key = signature(node, no_recycling)
        linked = None if key is None else self._cached.get(key)
        if linked is None:
            linked = Linked(node, no_recycling)
            if key is not None and linked.is_keyed:
                self._cached[key] = linked
        return linked

    def make_c_thunk(
        self,
        node: Apply,
        storage_map: dict[Variable, list[Any]],
        compute_map: dict[Variable, list[bool]],
        no_recycling: Sequence[Variable],
    ) -> Callable[[], None] | None:
        """Make a thunk like ``Op.make_c_thunk``; return None if only Theano can make it."""
        if has_unsafe_halves(node):
            return None
        linked = self.linked(node, no_recycling)
        return self.thunk(linked, node, storage_map, compute_map, no_recycling) if linked.is_keyed else None

    def thunk(
        self,
        linked: Linked,
        node: Apply,
        storage_map: dict[Variable, list[Any]],
        compute_map: dict[Variable, list[bool]],
        no_recycling: Sequence[Variable],
    ) -> Callable[[], None]:
        """Make a thunk of C code, like ``Op.make_c_thunk``."""
        inputs = [storage_map[var] for var in node.inputs]
        outputs = [storage_map[var] for var in node.outputs]
        thunk = linked.thunk(node, no_recycling, inputs, outputs)
        computed = [compute_map[var] for var in node.outputs]

        def compute() -> None:
            thunk()
            for cell in computed:
                cell[0] = True

        made: Any = compute  # Theano's thunks are functions with attributes
        made.thunk = thunk
        made.cthunk = thunk.cthunk
        made.inputs = inputs
        made.outputs = outputs
        made.lazy = False
        return made


def has_unsafe_halves(node: Apply) -> bool:
    """Return whether a node has float16 values that its C code does not support."""
    if getattr(node.op, "_f16_ok", False):
        return False
    return any(getattr(var.type, "dtype", "") == "float16" for var in (*node.inputs, *node.outputs))


def _linker_of(node: Apply, no_recycling: Sequence[Variable]) -> CLinker:
    """Return a linker for a graph of one node, as in ``Op.make_c_thunk``."""
    graph = FunctionGraph(node.inputs, node.outputs)
    protected = [new for new, old in zip(graph.outputs, node.outputs, strict=True) if old in no_recycling]
    return CLinker().accept(graph, no_recycling=protected)
