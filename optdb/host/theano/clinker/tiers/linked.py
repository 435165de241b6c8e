"""Links functions in two tiers: nodes whose compiled modules are missing run in Python at first."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import theano
from theano import config
from theano.gof.graph import Apply, Variable
from theano.gof.vm import VM_Linker
from theano.scan_module.scan_op import Scan

from optdb.host.api.patching import PatchGroup
from optdb.host.theano.clinker.extensions import EXTENSIONS, is_built
from optdb.host.theano.clinker.linking import Linked, NodeLinker
from optdb.host.theano.clinker.tiers.background import Background, Job, background
from optdb.host.theano.clinker.tiers.machines import MachineExchange, is_exchangeable
from optdb.host.theano.clinker.tiers.thunks import ChangingThunk
from optdb.host.theano.functions.compiled import take_turns

Cells = dict[Variable, list[Any]]


def can_have_tiers(linker: Any) -> bool:
    """Return whether a linker's functions may start in Python.

    Functions linked by ``c`` or ``c|py``, or with a callback for each node, do not start before their C code is built.
    """
    return isinstance(linker, VM_Linker) and linker.callback is None and linker.callback_input is None


class TieredLink:
    """Links one function in two tiers; `missing` contains the hashes of the modules to build."""

    def __init__(self, linker: VM_Linker, nodes: NodeLinker, missing: set[str], queue: Background = background) -> None:
        self._linker = linker
        self._nodes = nodes
        self._missing = missing
        self._queue = queue
        self._machine_arguments: tuple[Any, ...] = ()
        self._has_changing = False

    def make_all(self, make_all: Callable[[], Any]) -> Any:
        """Return the result of the linker's ``make_all``, with a virtual machine that switches from Python to C."""
        with self._noting_machine():
            machine, *rest, thunks, order = make_all()
        if self._has_changing:
            self._queue.start()
        if is_exchangeable(machine):
            _turns.install()
            has_updates, overwrites_state = bool(self._linker.updated_vars), any(map(_overwrites, order))
            exchange = MachineExchange(thunks, self._machine_maker(), self._queue, has_updates, overwrites_state)
            machine = exchange.begin(machine)
        return (machine, *rest, thunks, order)

    @contextmanager
    def _noting_machine(self) -> Iterator[None]:
        linker = self._linker

        def make_vm(*args: Any) -> Any:
            self._machine_arguments = args
            return type(linker).make_vm(linker, *args)

        vars(linker)["make_vm"] = make_vm
        try:
            yield
        finally:
            del linker.make_vm

    def _machine_maker(self) -> Callable[[list[Any]], Any]:
        linker = self._linker
        order, _, *rest = self._machine_arguments
        return lambda thunks: type(linker).make_vm(linker, order, thunks, *rest)

    def thunk(
        self, node: Apply, storage_map: Cells, compute_map: Cells, no_recycling: Sequence[Variable]
    ) -> ChangingThunk | None:
        """Return a thunk that runs a node in Python at first; None if the node's module is built or unknown."""
        linked = self._nodes.linked(node, no_recycling)
        wanted = linked.wanted  # `wanted` is None once a thread has loaded the module
        if wanted is None or wanted.module_hash not in self._missing:
            return None
        in_python = node.op.make_thunk(node, storage_map, compute_map, no_recycling, impl="py")
        make_in_c = _maker_in_c(self._nodes, linked, node, storage_map, compute_map, no_recycling)
        return self._changing(node, in_python, self._queue.module(wanted), make_in_c, storage_map)

    def scan_thunk(
        self, op: Scan, make_thunk: Callable[..., Any], node: Apply, storage_map: Cells, compute_map: Cells
    ) -> Any:
        """Return a Scan's thunk, which runs the loop in Python until Theano's C code for loops is built."""
        if not config.cxx or _is_scan_loop_built():
            return make_thunk(node, storage_map, compute_map, [])
        in_python = make_thunk(node, storage_map, compute_map, [], impl="py")
        storage, computed = _of_node(node, storage_map), _of_node(node, compute_map)
        allow_gc = config.allow_gc

        def make_in_c() -> Any:
            # Theano's make_thunk reads this flag; use the value from the time of linking.
            with theano.change_flags(allow_gc=allow_gc):
                return make_thunk(node, storage, computed, [])

        return self._changing(node, in_python, _scan_loop_job(self._queue), make_in_c, storage_map)

    def _changing(self, node: Apply, in_python: Any, job: Any, make_in_c: Any, storage_map: Cells) -> ChangingThunk:
        self._has_changing = True
        return ChangingThunk(node, in_python, job, make_in_c, storage_map, self._queue)


_turns = PatchGroup("Turns of tiered functions", "from the first function with tiers on", "nothing", [take_turns])


def _maker_in_c(
    nodes: NodeLinker,
    linked: Linked,
    node: Apply,
    storage_map: Cells,
    compute_map: Cells,
    no_recycling: Sequence[Variable],
) -> Callable[[], Any]:
    # Look up the storage now, because Theano may change its dictionaries after the thunks are made.
    storage, computed = _of_node(node, storage_map), _of_node(node, compute_map)
    return lambda: nodes.thunk(linked, node, storage, computed, no_recycling)


def _overwrites(node: Apply) -> bool:
    return bool(getattr(node.op, "destroy_map", None))


def _of_node(node: Apply, cells: Cells) -> Cells:
    return {var: cells[var] for var in (*node.inputs, *node.outputs)}


_MODULE = "theano.scan_module.scan_perform_ext"
_FOLDER = EXTENSIONS[_MODULE]
_PLAIN_FLAGS = "optdb.device=cpu,optdb.contexts=,optdb.tiered=False,optdb.topo=False"
_CODE = "import sys; sys.path[:0] = sys.argv[1:]; import optdb, " + _MODULE


def _is_scan_loop_built() -> bool:
    if _MODULE in sys.modules:
        return True
    return is_built(Path(config.compiledir), _FOLDER)


def _scan_loop_job(queue: Background) -> Job:
    """Return the job that builds Scan's loop by importing its module in another process."""
    chosen = f"compiledir={config.compiledir},cxx={config.cxx}," + _PLAIN_FLAGS
    env = {**os.environ, "THEANO_FLAGS": ",".join(filter(None, [os.environ.get("THEANO_FLAGS", ""), chosen]))}
    folders = [folder for folder in sys.path if folder]
    return queue.extension(_FOLDER, [sys.executable, "-c", _CODE, *folders], env)
