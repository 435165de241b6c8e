"""Compiles a model by stock Theano and by optdb's engine, and counts the nodes of both graphs.

``fuzzing.quality`` runs this module in processes, each of which compares some models under its own PYTHONHASHSEED.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections import Counter
from dataclasses import astuple, dataclass, field
from typing import Any

import theano
from theano.tensor.elemwise import Elemwise

import optdb  # must precede theano
from fuzzing.quality import densities, nets, recurrences
from fuzzing.quality.drawn import Drawn
from models.python_code import python_code
from profiles.interpret import Interpreter
from profiles.measure import destroyed_ranks

# isort: split


#: For each kind of model, a function that draws a model from a seed.
KINDS = {"nets": nets.draw, "densities": densities.draw, "recurrences": recurrences.draw}


@dataclass(frozen=True)
class Counts:
    """The number of nodes of a graph, and the number of nodes that overwrite an array."""

    nodes: int
    inplace: int


@dataclass(frozen=True)
class Comparison:
    """Node counts of a model, optimized by fast_run with ``cycle_detection=regular`` and by the engine.

    `fewer` lists the ops that have fewer nodes in the engine's graph, with the difference, and `more` the ops that have
    more. `more_of_class` counts the additional nodes of each op class except Elemwise, because even a smaller graph may
    have more nodes of some class.
    """

    words: str
    stock: Counts
    engine: Counts
    fewer: list[str]
    more: list[str]
    more_of_class: dict[str, int] = field(default_factory=dict)

    @property
    def is_worse(self) -> bool:
        """Whether the engine's graph has more nodes than stock Theano's, or as many nodes but fewer in-place nodes."""
        if self.engine.nodes != self.stock.nodes:
            return self.engine.nodes > self.stock.nodes
        return self.engine.inplace < self.stock.inplace


def compare(kind: str, seed: int) -> Comparison:
    """Draw a model of a kind from a seed, optimize it with Theano and with the engine, and count nodes."""
    drawn = KINDS[kind](seed)
    # Include rewriters that need a C compiler, but fold constants in Python.
    with python_code():
        with theano.change_flags(cycle_detection="regular"):
            stock = _graph(drawn, theano.Mode(Interpreter(), "fast_run"))
        engine = _graph(drawn, optdb.mode(theano.Mode(Interpreter(), "fast_run")))
    before, after = (Counter(str(node.op)[:160] for node in graph.apply_nodes) for graph in (stock, engine))
    return Comparison(
        drawn.words,
        _counts(stock),
        _counts(engine),
        [f"{n} {op}" for op, n in (before - after).items()],
        [f"{n} {op}" for op, n in (after - before).items()],
        dict(_by_class(engine) - _by_class(stock)),
    )


def _by_class(graph: Any) -> Counter[str]:
    """Return the number of nodes of each class of ops except Elemwise, which Theano and the engine fuse differently."""
    return Counter(type(node.op).__name__ for node in graph.apply_nodes if not isinstance(node.op, Elemwise))


def _graph(drawn: Drawn, mode: Any) -> Any:
    function = theano.function(drawn.inputs, drawn.outputs, updates=drawn.updates, mode=mode, on_unused_input="ignore")
    return function.maker.fgraph


def _counts(graph: Any) -> Counts:
    nodes = graph.apply_nodes
    # Nodes that overwrite a scalar are not counted, because this saves nothing.
    return Counts(len(nodes), sum(any(destroyed_ranks(node)) for node in nodes))


def write_comparisons(kind: str, first: int, stop: int) -> None:
    """Compare the models with seeds from `first` to `stop - 1`, and write one line for each model."""
    for seed in range(first, stop):
        line = {"kind": kind, "seed": seed}
        try:
            found = compare(kind, seed)
        except Exception:
            line["error"] = traceback.format_exc()[-1500:]
        else:
            line |= {"words": found.words, "fewer": found.fewer, "more": found.more, "is_worse": found.is_worse}
            line |= {"stock": astuple(found.stock), "engine": astuple(found.engine)}
            line["more_of_class"] = found.more_of_class
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    write_comparisons(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
