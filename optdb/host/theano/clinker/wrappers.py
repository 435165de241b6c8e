"""Wraps Theano's functions that link, compile and cache C code, so that C code is compiled in batches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from theano import config
from theano.compile.function_module import FunctionMaker
from theano.gof import cmodule
from theano.gof.cc import CLinker, OpWiseCLinker
from theano.gof.op import COp, Op
from theano.gof.vm import VM_Linker
from theano.scan_module import scan_op

from optdb.collector import growing
from optdb.host.api.patching import Patch, Wrapper, around
from optdb.host.theano.clinker.cache import module_cache
from optdb.host.theano.clinker.collecting import collector
from optdb.host.theano.clinker.progress import progress
from optdb.host.theano.clinker.signatures import keep_without_props, stable_version
from optdb.host.theano.clinker.tiers.machines import bind
from optdb.host.theano.importing.support import writing_compiledir


@around
def _linking(make_all: Callable[..., Any], self: Any, *args: Any, **options: Any) -> Any:
    with writing_compiledir(config.compiledir):
        return collector.link(self, lambda: make_all(self, *args, **options))


@around
def _sharing_thunks(
    make_c_thunk: Callable[..., Any], self: Op, node: Any, storage_map: Any, compute_map: Any, no_recycling: Any
) -> Any:
    thunk = collector.make_c_thunk(node, storage_map, compute_map, no_recycling)
    if thunk is not None:
        return thunk
    return make_c_thunk(self, node, storage_map, compute_map, no_recycling)


@around
def _scan_thunks(
    make_thunk: Callable[..., Any],
    self: scan_op.Scan,
    node: Any,
    storage: Any,
    computed: Any,
    no_recycling: Any,
    impl: str | None = None,
) -> Any:
    bound = functools.partial(make_thunk, self)
    return collector.scan_thunk(self, bound, (node, storage, computed, no_recycling), impl)


@around
def _scan_functions(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return collector.scan_function(function, args, options)


@around
def _optimizing(init: Callable[..., None], self: FunctionMaker, *args: Any, **options: Any) -> None:
    collector.begin_maker(self)
    with growing(), progress.phase("optimizing"):
        init(self, *args, **options)


@around
def _creating(create: Callable[..., Any], self: FunctionMaker, *args: Any, **options: Any) -> Any:
    collector.postpone(self, args, options)
    with growing(), progress.phase("linking"):
        function = create(self, *args, **options)
    bind(function)
    return function


def wrappers() -> list[Patch]:
    """Return the patches to Theano's functions."""
    together = "the modules of a function are compiled together"
    scans = "the inner functions of Scans are compiled with their outer functions"
    shown = "shows progress; a Scan's inner function may be compiled later"
    return [
        Wrapper(CLinker, "cmodule_key_", keep_without_props, "an op without __props__ has a key as well"),
        Wrapper(COp, "c_code_cache_version", stable_version, "a version does not depend on the process"),
        Patch(cmodule, "get_module_cache", module_cache, "the folder is not locked as a whole"),
        Wrapper(Op, "make_c_thunk", _sharing_thunks, together),
        Wrapper(VM_Linker, "make_all", _linking, together),
        Wrapper(OpWiseCLinker, "make_all", _linking, together),
        Wrapper(scan_op.Scan, "make_thunk", _scan_thunks, scans),
        Wrapper(scan_op, "function", _scan_functions, scans),
        Wrapper(FunctionMaker, "__init__", _optimizing, shown),
        Wrapper(FunctionMaker, "create", _creating, shown),
    ]
