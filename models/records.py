"""What came of a model: a `Result` for each way, and the `Report` that judges them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from models.values import DEVICE_TOLERANCE, HOST_TOLERANCE

STOCK, ENGINE = "stock", "engine"

CHAOS = 10
"""How many times what nudges do to stock's values a difference may be."""

SHARE = 0.2
"""The part of a step's time from which on something is a reason for it."""


@dataclass
class Result:
    """What came of a model in one way.

    Parameters
    ----------
    difference
        The largest difference of a value from stock's, relative to the largest number of its array.
    where
        Which value has it.
    error
        The end of the error, if there was one.
    compiling
        CPU seconds to compile it, without those of a C compiler.
    nodes, inplace, branches
        Counts of the graph for the host: its nodes, those that overwrite an array, those that choose a branch.
    on_device, on_host, transfers
        Counts of the graph for the device.
    stayed
        Op, reason and number of nodes of what was not lifted.
    """

    difference: float = 0.0
    where: str = ""
    error: str = ""
    compiling: float = 0.0
    nodes: int = 0
    inplace: int = 0
    branches: int = 0
    on_device: int = 0
    on_host: int = 0
    transfers: int = 0
    stayed: list[list[Any]] = field(default_factory=list)


@dataclass
class Times:
    """What a step takes.

    Parameters
    ----------
    seconds
        Of a step, by the name of the way; stock's is Theano's C code.
    launches
        Kernels that a step launches.
    kernels
        Seconds that they take on the device.
    host
        Seconds of Python for what is left on the host.
    host_ops
        The ops that take most of them, with their seconds.
    device
        What the device is called.
    """

    seconds: dict[str, float]
    launches: int = 0
    kernels: float = 0.0
    host: float = 0.0
    host_ops: list[list[Any]] = field(default_factory=list)
    device: str = ""

    def ratio(self, way: str) -> float:
        """Return how many times faster a way is than Theano's C code."""
        return self.seconds[STOCK] / self.seconds[way]


@dataclass
class Report:
    """What came of a model.

    Parameters
    ----------
    model, library
        Their names.
    floatX
        What was computed in.
    results
        By the name of the way.
    chaos
        How far stock's values went when the first ones were some units in the last place away; looked at where a way
        differs.
    error
        How the process ended, if it did not get to its end.
    times
        What a step takes, if that was asked for.
    calm
        The same model in float64, if it is chaotic in float32.
    not_finite
        Which outputs of stock's are finite in no call, and which shared variables not at the end: they compare nothing.
    """

    model: str
    library: str
    floatX: str  # noqa: N815  (Theano's name)
    results: dict[str, Result] = field(default_factory=dict)
    chaos: float = 0.0
    error: str = ""
    times: Times | None = None
    calm: Report | None = None
    not_finite: list[str] = field(default_factory=list)

    @classmethod
    def from_json(cls, report: dict[str, Any]) -> Report:
        """Return the report that a worker has sent, or that a file has."""
        known = {one.name: report[one.name] for one in fields(cls) if one.name in report}
        known["results"] = {way: Result(**result) for way, result in known["results"].items()}
        if known.get("times"):
            known["times"] = Times(**known["times"])
        if known.get("calm"):
            known["calm"] = cls.from_json(known["calm"])
        return cls(**known)

    def reasons(self, way: str) -> list[str]:
        """Return why a step on the device takes longer than Theano's C code, the weightiest reason first.

        Seconds are set against what is missing: the device's own, those of the host's ops, and what is left, which goes
        into enqueueing.
        """
        times, result = self.times, self.results.get(way)
        if times is None or result is None or times.ratio(way) >= 1:
            return []
        step = times.seconds[way]
        parts = [
            (times.kernels, f"kernels on small arrays: {times.launches} launches take {1e3 * times.kernels:.1f} ms"),
            (times.host, _host_reason(times, result)),
            (step - times.kernels - times.host, f"{times.launches} launches to enqueue"),
        ]
        told = [text for seconds, text in sorted(parts, reverse=True) if seconds >= SHARE * step]
        return told or [f"{times.launches} launches, none of which dominates"]

    def tolerance(self, way: str) -> float:
        """Return the difference that a way may have."""
        return (HOST_TOLERANCE if way in (STOCK, ENGINE) else DEVICE_TOLERANCE)[self.floatX]

    def agrees(self, way: str) -> bool:
        """Tell whether a way gave stock's values, within rounding."""
        result = self.results[way]
        return not result.error and result.difference <= self.tolerance(way)

    def is_chaotic(self, way: str) -> bool:
        """Tell whether a way differs, and by no more than rounding makes stock differ from itself."""
        result = self.results[way]
        return not result.error and not self.agrees(way) and result.difference <= CHAOS * self.chaos

    def faults(self) -> list[str]:
        """Return what is wrong, in words."""
        if self.error:
            return [self.error]
        faults = []
        for way, result in self.results.items():
            if result.error:
                faults.append(f"{way} fails: {result.error}")
            elif not self.agrees(way) and not self.is_chaotic(way):
                faults.append(f"{way} differs from stock by {result.difference:.1e} in {result.where}")
        if self.not_finite:
            faults.append(
                f"stock's own values are not finite, {self.not_finite[0]} first: the model needs different data"
            )
        if self.calm is not None:
            faults += [f"in float64: {fault}" for fault in self.calm.faults()]
        return faults + self._graph_faults()

    def _graph_faults(self) -> list[str]:
        stock, engine = self.results.get(STOCK), self.results.get(ENGINE)
        if stock is None or engine is None or stock.error or engine.error:
            return []
        if engine.nodes > stock.nodes:
            return [f"the engine's graph has {engine.nodes} nodes, stock's {stock.nodes}"]
        if engine.nodes == stock.nodes and engine.inplace < stock.inplace:
            return [
                f"the engine's graph has {engine.inplace} in-place nodes, stock's {stock.inplace}, of {stock.nodes}"
            ]
        return []


def _host_reason(times: Times, result: Result) -> str:
    named = ", ".join(f"{op} {1e3 * seconds:.1f} ms" for op, seconds in times.host_ops)
    return f"{result.on_host} nodes on the host ({named}), {result.transfers} transfers"
