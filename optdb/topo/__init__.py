"""The host-independent rewrite engine, its database, and the module that connects the engine to Theano."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from optdb.host import import_host

if TYPE_CHECKING:
    from optdb.topo.db import TopoOptDB, register_topo, topo_db
    from optdb.topo.plug import TopoMode, disable, enable, is_enabled, mode
    from optdb.topo.result import TopoResult, collect
    from optdb.topo.rewriter import TopoRewriter
    from optdb.topo.worklist import Worklist

import_host()

#: Maps each public name to the module that it is imported from on first use, because most modules need Theano.
_LAZY_ATTRS = {
    **dict.fromkeys(("TopoMode", "disable", "enable", "is_enabled", "mode"), "plug"),
    **dict.fromkeys(("TopoOptDB", "register_topo", "topo_db"), "db"),
    **dict.fromkeys(("TopoResult", "collect"), "result"),
    **{"TopoRewriter": "rewriter", "Worklist": "worklist"},
}

__all__ = [
    "TopoMode",
    "TopoOptDB",
    "TopoResult",
    "TopoRewriter",
    "Worklist",
    "collect",
    "disable",
    "enable",
    "is_enabled",
    "mode",
    "register_topo",
    "topo_db",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY_ATTRS:
        raise AttributeError(f"module 'optdb.topo' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"optdb.topo.{_LAZY_ATTRS[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
