"""The source of a function: its graph before rewriting, which other linkers can compile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytensor.compile.mode import Mode, optdb
from pytensor.graph.basic import Variable, clone_get_equiv
from pytensor.graph.rewriting.basic import GraphRewriter

#: The tag of the rewriters in this module.
KEEP_SOURCE = "optdb_keep_source"


@dataclass(frozen=True)
class Source:
    """A copy of a graph before rewriting, and the tags of rewrites that the user has included or excluded."""

    inputs: Sequence[Variable]
    outputs: Sequence[Variable]
    included: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


class _KeepSource(GraphRewriter):  # type: ignore[misc]  # PyTensor is not installed where types are checked
    """Keeps a copy of a function's graph before the graph is rewritten."""

    def apply(self, fgraph: Any) -> None:
        if fgraph.update_mapping is None:
            return
        mode = fgraph._compile_mode
        query, linker = mode.provided_optimizer, mode.linker
        fgraph.optdb_source = Source(
            *_copy(fgraph.inputs, fgraph.outputs),
            tuple(tag for tag in query.include if tag not in ("fast_run", KEEP_SOURCE)),
            tuple(tag for tag in query.exclude if tag not in linker.incompatible_rewrites),
        )


class _TagOutputs(GraphRewriter):  # type: ignore[misc]  # PyTensor is not installed where types are checked
    """Tags a graph's outputs with the graph's source after all rewrites; copies of a function keep the tags."""

    def apply(self, fgraph: Any) -> None:
        for var in fgraph.outputs:
            if var.owner is not None and hasattr(fgraph, "optdb_source"):
                var.tag.optdb_source = fgraph.optdb_source


optdb.register(f"{KEEP_SOURCE}_copy", _KeepSource(), KEEP_SOURCE, position=-2)
optdb.register(f"{KEEP_SOURCE}_tags", _TagOutputs(), KEEP_SOURCE, position=1000)


def source_of(fgraph: Any) -> Source:
    """Return a function's graph before rewriting; if that is unknown, return a copy of the given, rewritten graph."""
    for output in fgraph.outputs:
        # If outputs share memory, PyTensor may have inserted a copy of an output.
        for var in (output, *(output.owner.inputs if output.owner else ())):
            found: Source | None = getattr(var.tag, "optdb_source", None)
            if found is not None:
                # A copy of a function may drop the updates. The updates are the last outputs, so cutting the list drops
                # them.
                return replace(found, outputs=found.outputs[: len(fgraph.outputs)])
    return Source(*_copy(fgraph.inputs, fgraph.outputs))


def mode_of_linker(linker: str | None, source: Source) -> Mode:
    """Return a mode with the user's rewrites and a given linker; None selects PyTensor's default linker."""
    query = Mode(linker, "fast_run" if linker else "default").provided_optimizer
    return Mode(linker, query.including(*source.included).excluding(*source.excluded))


def _copy(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> tuple[list[Variable], list[Variable]]:
    fresh = [var.type() for var in inputs]
    memo: dict[Any, Any] = dict(zip(inputs, fresh))
    copies = clone_get_equiv(inputs, outputs, False, False, memo)
    return fresh, [copies[var] for var in outputs]
