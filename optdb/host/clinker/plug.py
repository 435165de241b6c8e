"""Installs optdb's C linker in Theano, and removes it again."""

from __future__ import annotations

import atexit
import functools
import threading
from collections.abc import Callable
from typing import Any

from optdb.host.api.patching import PatchGroup, Wrapper
from optdb.host.importing.support import writing_compiledir
from optdb.host.speedups.collector import growing

__all__ = ["install", "is_installed", "is_wanted", "uninstall"]

_lock = threading.RLock()
_patches = PatchGroup("C code in batches", "from optdb.enable() on, or by the flag optdb.clinker", "optdb.disable()")


def is_wanted() -> bool:
    """Return whether the flag ``optdb.clinker`` lets optdb compile C code."""
    from theano.configparser import config

    return config.optdb.clinker is not False


def is_installed() -> bool:
    """Return whether optdb builds the C code."""
    return _patches.installed


def install() -> None:
    """Build the C code of each function by optdb from now on, if there is a compiler."""
    from theano import config

    if not config.cxx or not is_wanted():
        return
    with _lock:
        if not _patches.patches:
            _patches.patches.extend(_make_patches())
        _patches.install()


def uninstall() -> None:
    """Restore Theano's own linker. Theano finds the modules that optdb has built."""
    with _lock:
        _patches.uninstall()


def _make_patches() -> list[Wrapper]:
    from theano import config
    from theano.compile.function_module import FunctionMaker
    from theano.gof import cmodule
    from theano.gof.cc import CLinker, OpWiseCLinker
    from theano.gof.op import COp, Op
    from theano.gof.vm import VM_Linker
    from theano.scan_module import scan_op

    from optdb.host.clinker.cache import SharedModuleCache
    from optdb.host.clinker.collecting import collector, has_c_thunks
    from optdb.host.clinker.progress import progress
    from optdb.host.clinker.signatures import keep_without_props, stable_version
    from optdb.host.clinker.tiers.machines import bind

    def around_linking(make_all: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make_all)
        def linked(self: Any, *args: Any, **options: Any) -> Any:
            if not has_c_thunks(self):
                return make_all(self, *args, **options)
            with writing_compiledir(config.compiledir):
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
        def remembered(
            self: scan_op.Scan, node: Any, storage: Any, computed: Any, no_recycling: Any, impl: str | None = None
        ) -> Any:
            bound = functools.partial(make_thunk, self)
            return collector.scan_thunk(self, bound, (node, storage, computed, no_recycling), impl)

        return remembered

    def around_scan_function(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def postponable(*args: Any, **options: Any) -> Any:
            return collector.scan_function(function, args, options)

        return postponable

    shared: dict[str, SharedModuleCache] = {}

    def shared_cache(get_module_cache: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(get_module_cache)
        def get(dirname: str, init_args: dict[str, Any] | None = None) -> Any:
            if dirname not in shared:
                shared[dirname] = SharedModuleCache(dirname, **(init_args or {}))
                atexit.register(shared[dirname]._on_atexit)
            return shared[dirname]

        return get

    def around_init(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def begun(self: FunctionMaker, *args: Any, **options: Any) -> None:
            collector.begin_maker(self)
            with growing(), progress.phase("optimizing"):
                init(self, *args, **options)

        return begun

    def around_create(create: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(create)
        def postponable(self: FunctionMaker, *args: Any, **options: Any) -> Any:
            collector.postpone(self, args, options)
            with growing(), progress.phase("linking"):
                function = create(self, *args, **options)
            bind(function)
            return function

        return postponable

    together = "the modules of a function are compiled together"
    scans = "the inner functions of Scans are compiled together with what is around them"
    return [
        Wrapper(CLinker, "cmodule_key_", keep_without_props, "an op without properties has a key as well"),
        Wrapper(COp, "c_code_cache_version", stable_version, "a version does not depend on the process"),
        Wrapper(cmodule, "get_module_cache", shared_cache, "no lock of the whole folder is taken"),
        Wrapper(Op, "make_c_thunk", around_c_thunk, together),
        Wrapper(VM_Linker, "make_all", around_linking, together),
        Wrapper(OpWiseCLinker, "make_all", around_linking, together),
        Wrapper(scan_op.Scan, "make_thunk", around_scan_thunk, scans),
        Wrapper(scan_op, "function", around_scan_function, scans),
        Wrapper(FunctionMaker, "__init__", around_init, "shows progress; a Scan's inner function may be put off"),
        Wrapper(FunctionMaker, "create", around_create, "shows progress; a Scan's inner function may be put off"),
    ]
