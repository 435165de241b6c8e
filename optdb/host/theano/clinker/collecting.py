"""Collects the C code of a function and of the inner functions of its Scans, before the first thunk is made.

Theano compiles a Scan's inner function when it makes the Scan's thunk. `Collector` interrupts the compilation after the
inner graph is optimized, and collects the graph's nodes. After all modules are built, the Scan's thunk is made again,
and `Collector` links the inner function.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from theano import change_flags, config
from theano.compile.function_module import FunctionMaker
from theano.compile.mode import get_mode
from theano.gof.cc import OpWiseCLinker
from theano.gof.graph import Apply, Constant, Variable
from theano.gof.op import Op, PureOp
from theano.gof.vm import VM_Linker
from theano.scan_module.scan_op import Scan
from theano.tensor.elemwise import Elemwise

from optdb.host.api.folding import MAX_PY_INPUTS
from optdb.host.theano.clinker.cache import Wanted, module_cache
from optdb.host.theano.clinker.linking import NoCode, NodeLinker, has_unsafe_halves
from optdb.host.theano.clinker.progress import progress
from optdb.host.theano.clinker.tiers.linked import TieredLink, can_have_tiers

#: The maximum number of elements of a test value that is computed in Python, which takes about 100 ns per element.
_MAX_QUICK_ELEMENTS = 10_000
#: Modules of ops whose Python code is fast, because it calls NumPy or SciPy. Convolution and pooling, whose Python code
#: runs loops, are in other modules.
_QUICK_MODULES = tuple(
    f"theano.{name}"
    for name in (
        *("tensor.basic", "tensor.blas", "tensor.elemwise", "tensor.extra_ops", "tensor.inplace", "tensor.nlinalg"),
        *("tensor.opt", "tensor.slinalg", "tensor.subtensor", "compile.ops", "scalar.basic"),
    )
)


class _Postponed(Exception):
    """Raised to leave a compilation after a Scan's inner function is optimized; the function is linked later."""


class _Request:
    """A request to optimize the inner function of a Scan and to link it later."""

    def __init__(self, op: Scan | None) -> None:
        self.op = op
        self.start = time.time()
        self.seconds = 0.0
        self.maker: FunctionMaker | None = None
        self.args: tuple[Any, ...] = ()
        self.options: dict[str, Any] = {}


class Collector(threading.local):
    """The state of a thread's compilation; nested compilations share the state."""

    def __init__(self) -> None:
        self.nodes = NodeLinker()
        self._depth = 0
        self._wanted: dict[str, Wanted] = {}
        self._missing: set[str] = set()
        self._visited: set[Apply] = set()
        self._scans: list[Scan] = []
        self._postponed: dict[int, _Request] = {}  # by the op's id
        self._request: _Request | None = None
        self._is_collecting = False
        #: The functions that are being linked, the innermost last; None for a function that does not start in Python.
        self._links: list[TieredLink | None] = []

    # Wrappers of Theano's linkers

    def link(self, linker: Any, make_all: Callable[[], Any]) -> Any:
        """Build all modules that a linker's graph needs, then make the linker's thunks."""
        self._depth += 1
        try:
            if self._depth == 1:
                self.nodes.begin()
            if config.cxx and has_c_thunks(linker):
                self._collect(linker.fgraph.apply_nodes, no_recycling_of(linker))
            if not (self._wants_tiers(linker) and can_have_tiers(linker)):
                self._build()
                return self._within(None, make_all)
            self._missing.update(module_cache().missing(self._wanted.values()))
            self._wanted.clear()
            link = TieredLink(linker, self.nodes, self._missing)
            return self._within(link, lambda: link.make_all(make_all))
        finally:
            self._depth -= 1
            if not self._depth:
                self._wanted.clear()
                self._missing.clear()
                self._visited.clear()
                self._postponed.clear()

    def _wants_tiers(self, linker: Any) -> bool:
        """Return whether a function starts in Python; an inner function does so if its outer function does."""
        if self._links:
            return self._links[-1] is not None
        return config.optdb.tiered or getattr(linker, "tiered", False)

    def _within(self, link: TieredLink | None, make_all: Callable[[], Any]) -> Any:
        self._links.append(link)
        try:
            return make_all()
        finally:
            self._links.pop()

    def _build(self) -> None:
        if self._wanted:
            wanted = list(self._wanted.values())
            self._wanted.clear()
            with progress.phase("compiling"):
                module_cache().build(wanted, progress.count)

    def _collect(self, nodes: Iterable[Apply], no_recycling: Sequence[Variable]) -> None:
        for node in nodes:
            if node in self._visited:
                continue
            self._visited.add(node)
            try:
                if isinstance(node.op, Scan):
                    self._collect_scan(node)
                elif _has_usual_thunk(node.op) and not has_unsafe_halves(node):
                    self._collect_code(node, no_recycling)
            except NoCode:
                continue
            except Exception:
                # Theano raises the same error, with the node's name, when it makes the thunk.
                continue

    def _collect_code(self, node: Apply, no_recycling: Sequence[Variable]) -> None:
        node.op.prepare_node(node, storage_map=_storage(node), compute_map=_storage(node), impl="c")
        wanted = self.nodes.linked(node, no_recycling).wanted
        if wanted is not None:
            self._wanted[wanted.module_hash] = wanted

    def make_c_thunk(
        self,
        node: Apply,
        storage_map: dict[Variable, list[Any]],
        compute_map: dict[Variable, list[Any]],
        no_recycling: Sequence[Variable],
    ) -> Callable[[], None] | None:
        """Make a node's thunk like `NodeLinker.make_c_thunk`, but compute small test values in Python."""
        if not self._depth:
            if _is_quick_in_python(node, storage_map):
                return node.op.make_thunk(node, storage_map, compute_map, no_recycling, impl="py")
            self.nodes.begin()
        link = self._links[-1] if self._links else None
        rest = storage_map, compute_map, no_recycling
        changing = None if link is None or has_unsafe_halves(node) else link.thunk(node, *rest)
        return changing or self.nodes.make_c_thunk(node, *rest)

    # Wrappers of Scan

    def _collect_scan(self, node: Apply) -> None:
        op = node.op
        if getattr(op, "fn", None) or id(op) in self._postponed:
            return
        was_collecting, self._is_collecting = self._is_collecting, True
        try:
            op.make_thunk(node, _storage(node), _storage(node), [])
        except _Postponed:
            return
        finally:
            self._is_collecting = was_collecting

    def scan_thunk(self, op: Scan, make_thunk: Callable[..., Any], args: tuple[Any, ...], impl: str | None) -> Any:
        """Make the thunk of a Scan; until it is made, `scan_function` compiles the inner function of this Scan."""
        self._scans.append(op)
        link = self._links[-1] if self._links and not self._is_collecting else None
        try:
            if link is None or impl is not None:
                return make_thunk(*args, impl=impl)
            return link.scan_thunk(op, make_thunk, *args[:3])
        finally:
            self._scans.pop()

    def scan_function(self, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Compile the inner function of the current Scan; while collecting code, raise `_Postponed` before linking."""
        op = self._scans[-1] if self._scans else None
        if not self._is_collecting and id(op) in self._postponed:
            return _finish(self._postponed.pop(id(op)))
        if not self._is_collecting or not _has_usual_maker(options.get("mode")):
            return self._compiled(function, args, options)
        self._request = request = _Request(op)
        self._is_collecting = False
        try:
            return function(*args, **options)
        except _Postponed:
            request.seconds = time.time() - request.start
            self._postponed[id(op)] = request
            raise
        finally:
            self._request = None
            self._is_collecting = True

    def _compiled(self, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        was_collecting, self._is_collecting = self._is_collecting, False
        try:
            return function(*args, **options)
        finally:
            self._is_collecting = was_collecting

    def begin_maker(self, maker: FunctionMaker) -> None:
        """Record the first FunctionMaker created after a request; it belongs to the requested function."""
        if self._request is not None and self._request.maker is None:
            self._request.maker = maker

    def postpone(self, maker: FunctionMaker, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Collect the C code of the requested function, and raise `_Postponed`; do nothing for other functions."""
        request = self._request
        if request is None or request.maker is not maker:
            return
        request.args, request.options = args, options
        self._request = None
        linker = maker.linker
        if has_c_thunks(linker):
            self._collect(maker.fgraph.apply_nodes, no_recycling_of(linker))
        raise _Postponed


def _finish(request: _Request) -> Any:
    """Link a postponed function: do the rest of what Theano's ``orig_function`` does."""
    start = time.time()
    maker = request.maker
    assert maker is not None, "a request is postponed when it has a maker"
    with change_flags(compute_test_value="off"):
        function = maker.create(*request.args, **request.options)
    if maker.profile:
        maker.profile.compile_time += request.seconds + time.time() - start
        maker.profile.nb_nodes = len(maker.fgraph.apply_nodes)
    return function


def _has_usual_maker(mode: Any) -> bool:
    return getattr(get_mode(mode), "function_maker", FunctionMaker) is FunctionMaker


def _has_usual_thunk(op: Any) -> bool:
    """Return whether an op's thunk consists only of its C code."""
    kind = type(op)
    return isinstance(op, Op) and kind.make_thunk is Op.make_thunk and kind.make_c_thunk is Op.make_c_thunk


def _storage(node: Apply) -> dict[Variable, list[Any]]:
    variables = (*node.inputs, *node.outputs)
    return {var: [var.data if isinstance(var, Constant) else None] for var in variables}


def has_c_thunks(linker: Any) -> bool:
    """Return whether a linker makes a C thunk for each node that has C code."""
    if isinstance(linker, VM_Linker):
        return linker.c_thunks is not False
    return isinstance(linker, OpWiseCLinker)


def no_recycling_of(linker: Any) -> Sequence[Variable]:
    """Return the variables whose storage the thunks of a linker must not reuse."""
    return [] if isinstance(linker, VM_Linker) else linker.no_recycling


def _is_quick_in_python(node: Apply, storage_map: dict[Variable, list[Any]]) -> bool:
    """Return whether computing a test value in Python takes less time than compiling the node's C code.

    With PyMC3's test values, a model of a hundred nodes would otherwise start a hundred compilers.
    """
    op = type(node.op)
    if config.compute_test_value == "off" or op.__module__ not in _QUICK_MODULES:
        return False
    if op.perform is PureOp.perform or (issubclass(op, Elemwise) and len(node.inputs) > MAX_PY_INPUTS):
        return False
    return sum(np.size(storage_map[var][0]) for var in node.inputs) <= _MAX_QUICK_ELEMENTS


collector = Collector()
