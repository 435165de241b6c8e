"""Classes for the results of a model: a `Result` for each way, and a `Report` that evaluates them."""

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
    """The result of a model in one of `WAYS`.

    `difference` is the largest difference from the values of stock Theano, relative to the largest number of the array.
    `where` is the name of this array. `compiling` is the CPU seconds to compile the model, without those of the C
    compiler. `nodes`, `inplace` and `branches` count nodes of the graph on the host. `on_device`, `on_host` and
    `transfers` count nodes of the graph that is lifted to the device. `stayed` has a row `[op, reason, count]` for the
    nodes that were left on the host.
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
    """The seconds of a step in each way; for stock Theano, C code is timed.

    `launches` is the number of kernels that a step launches, and `kernels` is the seconds that they take on the device.
    `host` is the seconds that nodes on the host take, and `host_ops` lists the ops that take most of these seconds.
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
    """The results of a model in all requested ways.

    `chaos` is how much stock's values change if the initial values are changed by a few units in the last place. This
    is only measured if a way differs from stock. `calm` is the report of the same model in float64, if it is chaotic in
    float32. If the process did not finish, `error` says how it ended. `not_finite` has the names of stock's values that
    are not finite, because comparing these values proves nothing.
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
        """Return a report from its JSON form, which workers return and files contain."""
        known = {one.name: report[one.name] for one in fields(cls) if one.name in report}
        known["results"] = {way: Result(**result) for way, result in known["results"].items()}
        if known.get("times"):
            known["times"] = Times(**known["times"])
        if known.get("calm"):
            known["calm"] = cls.from_json(known["calm"])
        return cls(**known)

    def reasons(self, way: str) -> list[str]:
        """Return reasons why a step is slower on the device than in C, such as kernels or host ops, the worst first."""
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
        """Return the largest accepted difference between the values of a way and those of stock."""
        return (HOST_TOLERANCE if way in (STOCK, ENGINE) else DEVICE_TOLERANCE)[self.floatX]

    def agrees(self, way: str) -> bool:
        """Return whether the values of a way equal those of stock Theano within rounding."""
        result = self.results[way]
        return not result.error and result.difference <= self.tolerance(way)

    def is_chaotic(self, way: str) -> bool:
        """Return whether a way differs from stock by an amount that rounding may also cause in stock itself."""
        result = self.results[way]
        return not result.error and not self.agrees(way) and result.difference <= CHAOS * self.chaos

    def faults(self) -> list[str]:
        """Return a message for each fault."""
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
