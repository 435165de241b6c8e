"""Puts the C linker in Theano's place, and takes it away again."""

from __future__ import annotations

import atexit
import functools
import threading
from collections.abc import Callable
from typing import Any

from optdb.host.patching import Patch

__all__ = ["install", "is_installed", "is_wanted", "uninstall"]

_lock = threading.RLock()
_patches: list[Patch] = []


def is_wanted() -> bool:
    """Tell whether the flag ``optdb.clinker`` lets optdb have a part in compiling C code."""
    from theano.configparser import config

    return config.optdb.clinker is not False


def is_installed() -> bool:
    """Tell whether C code is built by optdb."""
    return bool(_patches) and _patches[0].installed


def install() -> None:
    """Let optdb build the C code of each function from now on, where there is a compiler."""
    from theano import config

    if not config.cxx or not is_wanted():
        return
    with _lock:
        if not _patches:
            _patches.extend(_make_patches())
            _surround_makers()
        for patch in _patches:
            patch.install()


def uninstall() -> None:
    """Put Theano's own linker back. Modules that were built stay where Theano finds them."""
    with _lock:
        for patch in reversed(_patches):
            patch.uninstall()


def _make_patches() -> list[Patch]:
    from theano.gof import cmodule
    from theano.gof.cc import CLinker, OpWiseCLinker
    from theano.gof.op import COp, Op
    from theano.gof.vm import VM_Linker
    from theano.scan_module import scan_op

    from optdb.host.clinker.cache import SharedModuleCache
    from optdb.host.clinker.collecting import collector, has_c_thunks
    from optdb.host.clinker.signatures import keep_without_props, stable_version

    def around_linking(make_all: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make_all)
        def linked(self: Any, *args: Any, **options: Any) -> Any:
            if not has_c_thunks(self):
                return make_all(self, *args, **options)
            return collector.link(self, lambda: make_all(self, *args, **options))

        return linked

    def around_c_thunk(make_c_thunk: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make_c_thunk)
        def shared(self: Op, node: Any, storage_map: Any, compute_map: Any, no_recycling: Any) -> Any:
            thunk = collector.make_c_thunk(node, storage_map, compute_map, no_recycling)
            if thunk is not None:
                return thunk
            return make_c_thunk(self, node, storage_map, compute_map, no_recycling)

        return shared

    def around_scan_thunk(make_thunk: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make_thunk)
        def remembered(self: scan_op.Scan, *args: Any, **options: Any) -> Any:
            return collector.scan_thunk(self, lambda: make_thunk(self, *args, **options))

        return remembered

    def around_scan_function(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def postponable(*args: Any, **options: Any) -> Any:
            return collector.scan_function(function, args, options)

        return postponable

    def shared_cache(get_module_cache: Callable[..., Any]) -> Callable[..., Any]:
        shared: dict[str, SharedModuleCache] = {}

        @functools.wraps(get_module_cache)
        def get(dirname: str, init_args: dict[str, Any] | None = None) -> Any:
            if dirname not in shared:
                shared[dirname] = SharedModuleCache(dirname, **(init_args or {}))
                atexit.register(shared[dirname]._on_atexit)
            return shared[dirname]

        return get

    return [
        Patch(CLinker, "cmodule_key_", keep_without_props(CLinker.cmodule_key_)),
        Patch(COp, "c_code_cache_version", stable_version(COp.c_code_cache_version)),
        Patch(cmodule, "get_module_cache", shared_cache(cmodule.get_module_cache)),
        Patch(Op, "make_c_thunk", around_c_thunk(Op.make_c_thunk)),
        Patch(VM_Linker, "make_all", around_linking(VM_Linker.make_all)),
        Patch(OpWiseCLinker, "make_all", around_linking(OpWiseCLinker.make_all)),
        Patch(scan_op.Scan, "make_thunk", around_scan_thunk(scan_op.Scan.make_thunk)),
        Patch(scan_op, "function", around_scan_function(scan_op.function)),
    ]


def _surround_makers() -> None:
    """Let FunctionMakers be stopped before they link, from now on.

    These two stay: others go around the same methods (see ``optdb.host.compiled``), and what they put there must not
    be lost when this is taken away. They do nothing unless a Scan asks for it.
    """
    from theano.compile.function_module import FunctionMaker

    from optdb.host.clinker.collecting import collector
    from optdb.host.clinker.progress import progress

    init, create = FunctionMaker.__init__, FunctionMaker.create

    @functools.wraps(init)
    def begun(self: FunctionMaker, *args: Any, **options: Any) -> None:
        collector.begin_maker(self)
        with progress.phase("optimizing"):
            init(self, *args, **options)

    @functools.wraps(create)
    def postponable(self: FunctionMaker, *args: Any, **options: Any) -> Any:
        collector.postpone(self, args, options)
        with progress.phase("linking"):
            return create(self, *args, **options)

    FunctionMaker.__init__, FunctionMaker.create = begun, postponable
