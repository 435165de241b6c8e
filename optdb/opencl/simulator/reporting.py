"""What of a function runs where on a simulator, why, and what a call moves between the host and the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optdb.lifters.explain import Explanation, explained
from optdb.lifters.transfers import Traffic, count_transfers
from optdb.opencl.simulator.io_binding import ARGUMENTS, RESULTS
from optdb.opencl.simulator.stepping import Steps, Values
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.opencl.simulator.method import Method


def report(method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
    """Tell what of a method runs where.

    Parameters
    ----------
    method : Method
        Of a simulator.
    args, kwargs
        As the function takes them: with some, or if it takes none, what a call moves is counted. Nothing is changed.
    """
    graph = method.graph
    traffic: list[Traffic] = []
    needs_some = any(container.required for container in method.call.input_storage)
    if args or kwargs or not needs_some:
        method.override_compute(lambda: _counted(method, traffic), args, kwargs)
    return explained(method.function.name or "function", graph.fgraph, [graph.lifted], *traffic)


def _counted(method: Method, found: list[Traffic]) -> list[Any]:
    """Compute node by node, and count what crosses the border; return the outputs."""
    fgraph = method.graph.fgraph
    values: Values = method.given()
    with count_transfers() as traffic:
        Steps().compute(fgraph.outputs, values)
    outputs = [values.get(var, getattr(var, "data", None)) for var in fgraph.outputs]
    following = set(fgraph.update_mapping or ())
    moved = {
        ARGUMENTS: [values[var] for var in method.arguments],
        RESULTS: [value for place, value in enumerate(outputs) if place not in following],
    }
    for kind, group in moved.items():
        arrays = [value for value in group if isinstance(value, Array)]
        traffic.transfers[kind] += len(arrays)
        traffic.nbytes[kind] += sum(array.nbytes for array in arrays)
    found.append(traffic)
    return outputs
