"""Patches to Theano's linkers: functions with device arrays run in a planned VM, and fewer nodes need a C compiler.

The host ops in a device graph compute sizes and indices, which a plan computes only once. Compiling the C code of these
host ops would dominate the compile time, so they use ``perform``. Theano's searches for outputs and for reusable host
scalars are replaced, since they take longer than creating the thunks.
"""

from __future__ import annotations

import copy
import functools
import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Any

from optdb.device.launches.copies import build_early
from optdb.device.launches.residencies import is_decided
from optdb.host.api.config import config
from optdb.host.api.control_flow import IfElse
from optdb.host.api.graph import Apply, Op, Variable, op_of
from optdb.host.api.linking import HAS_C_LOOP, LocalLinker, VM_Linker, graph_of, has_default_schedule, vm
from optdb.host.api.patching import PatchGroup, Wrapper
from optdb.host.api.tensor import Elemwise
from optdb.host.theano.functions.compiled import take_turns
from optdb.opencl.linking.nodes import is_small, on_device, overwrites, touches_device
from optdb.opencl.linking.overwriting import check_next_values, final_last, keep_state, overwrites_state, state_of
from optdb.opencl.linking.planned_vm import PlannedVM, chooser, committing, link_function
from optdb.runtime.context import Turn


class _Linking(threading.local):
    """Whether the function that a thread is linking has device arrays."""

    device = False


_linking = _Linking()


class Outputs(list):
    """The outputs of a graph, with membership tests in constant time."""

    def __init__(self, variables: Iterable[Variable]) -> None:
        super().__init__(variables)
        self._known = frozenset(self)

    def __contains__(self, var: object) -> bool:
        return var in self._known


def _noting_devices(make_all: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make_all)
    def make_all_of_device(self: VM_Linker, *args: Any, **kwargs: Any) -> Any:
        """Link a function, and note whether it has device arrays, not counting the arrays of inner functions."""
        outer = _linking.device
        _linking.device = _is_here(self)
        if _linking.device:
            _prepare_devices(self)
        fgraph = graph_of(self)
        outputs = fgraph.outputs
        fgraph.outputs = Outputs(outputs)
        try:
            return make_all(self, *args, **kwargs)
        finally:
            fgraph.outputs = outputs
            _linking.device = outer

    return make_all_of_device


def _prepare_devices(linker: VM_Linker) -> None:
    """Start the measurements and compilations that merged launches need, so that calls do not wait for them."""
    if _may_plan(linker) and config.optdb.merge_launches != "never":
        computed = itertools.chain.from_iterable(node.outputs for node in graph_of(linker).apply_nodes)
        for context in {var.type.context for var in computed if on_device(var)}:
            build_early(context)
            is_decided(context, config.optdb.persistent_launches)


def _by_python(make_thunk: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make_thunk)
    def make_thunk_beside_device(
        self: Op, node: Apply, storage_map: Any, compute_map: Any, no_recycling: Any, impl: str | None = None
    ) -> Any:
        """Return a node's thunk; in a device function, small nodes and nodes that touch the device run in Python."""
        # Without a compiler, Theano itself requests Python thunks.
        if impl in (None, "py") and _linking.device:
            if is_small(node):
                node, impl = _without_inplace(node), "py"
            elif touches_device(node):
                impl = "py"
        return make_thunk(node.op, node, storage_map, compute_map, no_recycling, impl)

    return make_thunk_beside_device


class _Unplanned(Exception):
    """Raised if a function whose nodes overwrite state cannot run in a planned VM."""


def _keeping_state(make_thunk: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make_thunk)
    def make_thunk_and_keep_state(self: LocalLinker, *args: Any, **kwargs: Any) -> Any:
        """Link a function so that a call that raises changes no shared variable."""
        state = set() if getattr(self, "keeps_state", False) or not _is_here(self) else state_of(graph_of(self))
        holds = isinstance(self, VM_Linker) and _may_plan(self) and has_default_schedule(self)
        if state and holds:
            _exchange(self, state, True)
            self.schedule = functools.partial(final_last, state=state)
            self.needs_plans = overwrites_state(graph_of(self), state)
            try:
                return make_thunk(self, *args, **kwargs)
            except _Unplanned:
                pass
            finally:
                del self.schedule, self.needs_plans
        if state:
            _exchange(self, state, False)
        return make_thunk(self, *args, **kwargs)

    return make_thunk_and_keep_state


def _is_here(linker: LocalLinker) -> bool:
    return _turn(graph_of(linker).apply_nodes) is not None


def _exchange(linker: LocalLinker, state: set[Variable], holds: bool) -> None:
    """Replace nodes that must not overwrite state (see `keep_state`), and check next values."""
    exchanged = keep_state(graph_of(linker), state, holds)
    checked = {} if holds else check_next_values(graph_of(linker))
    # The results of checks are views of protected values, so these results must also be protected.
    computed = [exchanged.get(var, var) for var in linker.no_recycling]
    linker.no_recycling = [*computed, *(checked[var] for var in computed if var in checked)]
    updated = getattr(linker, "updated_vars", {})
    for var, following in list(updated.items()):
        following = exchanged.get(following, following)
        updated[var] = checked.get(following, following)


def _none_beside_device(reallocate: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reallocate)
    def calculate_reallocate_info(*args: Any) -> dict[Variable, list[Variable]]:
        """Return which host scalars may share a storage cell; in a function with device arrays, no scalars do."""
        return {} if _linking.device else reallocate(*args)

    return calculate_reallocate_info


def _without_inplace(node: Apply) -> Apply:
    """Return an equivalent elementwise node that writes to new memory."""
    if overwrites(node) or not getattr(node.op, "destroy_map", None):
        return node
    twin = copy.copy(node)
    op = op_of(node, Elemwise)
    twin.op = Elemwise(op.scalar_op, name=op.name, nfunc_spec=op.nfunc_spec)
    return twin


def _planning(make_vm: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make_vm)
    def make_planned_vm(self: VM_Linker, nodes: list, thunks: list, *args: Any) -> Any:
        """Return a planned VM if the function supports one, else Theano's VM."""
        turn, is_asked = _turn(nodes), getattr(self, "keeps_state", False)
        _inputs, _outputs, storage_map, post_thunk_clear, *_, updated_vars = args
        lazy = (node for node, thunk in zip(nodes, thunks) if thunk.lazy)
        if turn is None or not (_may_plan(self) and all(isinstance(node.op, IfElse) for node in lazy)):
            if getattr(self, "needs_plans", False):
                raise _Unplanned
            # Theano's C loop stores next values without calling `before_commit`.
            self.use_cloop = self.use_cloop and HAS_C_LOOP and not is_asked
            machine = make_vm(self, nodes, thunks, *args)
            if turn is not None or is_asked:
                machine = committing(machine, graph_of(self).outputs, dict(updated_vars), storage_map)
        else:
            before: dict[Apply, list[Apply]] = {}
            if any(thunk.lazy for thunk in thunks):
                # The only lazy op is `ifelse`, whose taken branch is computed before the node.
                before = graph_of(self).orderings()
                pairs = zip(nodes, thunks, strict=True)
                thunks = [chooser(node, storage_map) if thunk.lazy else thunk for node, thunk in pairs]
            graph = graph_of(self)
            linked = link_function(
                *(nodes, thunks, storage_map, graph.inputs, graph.outputs, dict(updated_vars), before),
                frees=post_thunk_clear is not None,
            )
            # Clear only exposed values before a call. Theano also protects values that small host nodes could
            # overwrite, but these nodes overwrite nothing in this function.
            linked.clear_before += [storage_map[var] for var in self.no_recycling if var in linked.exposed]
            machine = PlannedVM(linked, thunks)
        machine.turn = turn
        return machine

    return make_planned_vm


def _may_plan(linker: VM_Linker) -> bool:
    """Return whether a linker's device functions run with plans, provided that `ifelse` is their only lazy op."""
    if not (config.optdb.plans and _patches.installed):
        return False
    watched = linker.callback is not None or linker.callback_input is not None or config.profile
    # Without a compiler, the Python loop is Theano's default, not the user's choice.
    chosen = linker.use_cloop or not HAS_C_LOOP
    return chosen and not watched and not linker.allow_partial_eval


def _turn(nodes: Iterable[Apply]) -> Turn | None:
    """Return the device's `Turn`, whose lock a thread holds while nodes run; None if no node returns a device array."""
    here = (var for node in nodes for var in node.outputs if on_device(var))
    var = next(here, None)
    return None if var is None else var.type.context.turn


_patches = PatchGroup(
    "Plans",
    "from `import optdb.opencl` on",
    "optdb.opencl.linking.uninstall()",
    [
        Wrapper(VM_Linker, "make_vm", _planning, "functions with arrays on a device run by plans"),
        Wrapper(VM_Linker, "make_all", _noting_devices, "thunks depend on whether a function has arrays on a device"),
        Wrapper(vm, "calculate_reallocate_info", _none_beside_device, "plans assign memory themselves"),
        Wrapper(Op, "make_thunk", _by_python, "small work on the host of a device function needs no compiler"),
    ],
)
#: These patches are never uninstalled: functions without plans need them most.
_safety = PatchGroup(
    "State on a device",
    "from `import optdb.opencl` on",
    "nothing",
    [Wrapper(LocalLinker, "make_thunk", _keeping_state, "a call that raises changes no shared variable")],
)
#: This patch is never uninstalled: functions that were compiled earlier, or with the linker `opencl`, share device
#: arrays.
_turns = PatchGroup("Turns", "from `import optdb.opencl` on", "nothing", [take_turns])


def install() -> None:
    """Use plans to run functions that are compiled after this call."""
    _turns.install()
    _safety.install()
    _patches.install()


def uninstall() -> None:
    """Do not use plans to run functions that are compiled after this call."""
    _patches.uninstall()
