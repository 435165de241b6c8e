"""Evaluates the measurements of a model.

A `Comparison` holds all runs of a model with stock Theano and with optdb; its numbers are medians over runs. If
`Comparison.faults` returns an empty list, optdb's graph is as good as that of stock Theano.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.check import Agreement
from profiles.measure import PHASES, REWRITING, Measurement

STOCK, OPTDB = "stock", "optdb"


@dataclass(frozen=True)
class Comparison:
    """All runs of a model, under the keys `STOCK` and `OPTDB`; `agreement` is None if values were not compared."""

    model: str
    runs: dict[str, list[Measurement]]
    agreement: Agreement | None

    def last(self, way: str) -> Measurement:
        """Return the last run. Its numbers of nodes are reported, because they are the same in all runs."""
        return self.runs[way][-1]

    def seconds(self, way: str) -> float:
        """Return the median CPU seconds of the whole optimizer."""
        return statistics.median(run.seconds for run in self.runs[way])

    def phases(self, way: str) -> dict[str, float]:
        """Return the median CPU seconds of each phase."""
        return {phase: statistics.median(run.phases[phase] for run in self.runs[way]) for phase in PHASES}

    def rewriting(self, way: str) -> float:
        """Return the median CPU seconds of canonicalize, stabilize and specialize together."""
        return statistics.median(sum(run.phases[phase] for phase in REWRITING) for run in self.runs[way])

    @property
    def ratio(self) -> float:
        """The factor by which optdb reduces the seconds of the whole optimizer."""
        return _ratio(self.seconds(STOCK), self.seconds(OPTDB))

    @property
    def rewriting_ratio(self) -> float:
        """The factor by which optdb reduces the seconds of canonicalize, stabilize and specialize."""
        return _ratio(self.rewriting(STOCK), self.rewriting(OPTDB))

    def faults(self) -> list[str]:
        """Return a message for each thing that is worse with optdb than with stock Theano."""
        stock, ours = self.last(STOCK), self.last(OPTDB)
        faults = []
        if self.agreement is not None and not self.agreement.agree:
            faults.append(f"values disagree by {self.agreement.error:.1e} in {self.agreement.where}")
        if ours.after > stock.after:
            faults.append(f"{ours.after} apply nodes instead of {stock.after}")
        # A smaller graph also has fewer in-place nodes, so only graphs of equal size can be compared.
        if ours.after == stock.after and ours.inplace < stock.inplace:
            faults.append(f"{ours.inplace} in-place ops instead of {stock.inplace}")
        if len(ours.failures) > len(stock.failures):
            faults.append(f"{len(ours.failures)} errors logged, first: {ours.failures[0]}")
        return faults


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean of ratios; NaN if there are none."""
    logarithms = [math.log(ratio) for ratio in ratios if ratio > 0]
    return math.exp(statistics.fmean(logarithms)) if logarithms else math.nan


def _ratio(stock: float, ours: float) -> float:
    return stock / ours if ours else math.nan


#: A model's name, and a bar for stock Theano and one for optdb: its name, total seconds, and the seconds of each part.
Bars = tuple[str, Sequence[tuple[str, float, Mapping[str, float]]]]


def draw_shares(axes: Any, models: Sequence[Bars], parts: Sequence[str], colors: str) -> None:
    """Draw two stacked bars for each model, whose heights are relative to the first bar's seconds."""
    color_of = _colors(parts, colors)
    for position, (_, bars) in enumerate(models):
        whole = bars[0][1]
        for offset, (name, total, seconds) in zip((-0.2, 0.2), bars, strict=True):
            height = 0.0
            for part in parts:
                share = seconds[part] / whole
                axes.bar(position + offset, share, 0.38, bottom=height, color=color_of[part])
                height += share
            label = f"{name}\n{total:.2f} s"
            axes.text(position + offset, height, label, ha="center", va="bottom", fontsize=7)
    axes.set_xticks(range(len(models)), [name for name, _ in models])
    axes.margins(y=0.15)


def add_legend(figure: Any, parts: Sequence[str], colors: str) -> None:
    """Add a legend of the parts beside the plot, in the same order as in the bars."""
    from matplotlib.patches import Rectangle

    patches = [Rectangle((0, 0), 1, 1, color=color) for color in reversed(_colors(parts, colors).values())]
    figure.legend(patches, list(reversed(parts)), loc="outside right center", fontsize=8)


def _colors(parts: Sequence[str], colors: str) -> dict[str, Any]:
    from matplotlib import pyplot

    return dict(zip(parts, pyplot.get_cmap(colors)(range(len(parts))), strict=True))
