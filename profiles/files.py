"""Writes comparisons to files: all raw numbers as JSON, the phases as a plot of stacked bars."""

from __future__ import annotations

import json
import os
import platform
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import theano

import optdb
from profiles.measure import PHASES, Measurement
from profiles.report import OPTDB, STOCK, Comparison, geometric_mean


def environment() -> dict[str, object]:
    """Return the environment that the measurements depend on, besides the code."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "optdb": optdb.__version__,
        **{package: version(package) for package in ("theano", "numpy", "scipy")},
        "platform": platform.platform(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "floatX": theano.config.floatX,
        "compiler": bool(theano.config.cxx),
        "blas": theano.config.blas.ldflags,
    }


def write_json(comparisons: list[Comparison], baseline: str, path: Path) -> None:
    """Write every run of every model, with the medians and the verdict."""
    document = {
        "environment": environment(),
        "baseline": baseline,
        "models": [_model(comparison) for comparison in comparisons],
        "geometric_mean": {
            "whole": geometric_mean(comparison.ratio for comparison in comparisons),
            "rewriting": geometric_mean(comparison.rewriting_ratio for comparison in comparisons),
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def write_plot(comparisons: list[Comparison], baseline: str, path: Path) -> None:
    """Draw two stacked bars for each model, as shares of stock's time."""
    # Matplotlib takes a second to import, and needs a display by default.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Rectangle

    width = 0.38
    figure, axes = pyplot.subplots(figsize=(3 + 1.3 * len(comparisons), 6), layout="constrained")
    colors = dict(zip(PHASES, pyplot.get_cmap("tab20")(range(len(PHASES)))))
    for position, comparison in enumerate(comparisons):
        whole = comparison.seconds(STOCK)
        for way, offset in ((STOCK, -width / 2), (OPTDB, width / 2)):
            height = 0.0
            for phase, seconds in comparison.phases(way).items():
                axes.bar(position + offset, seconds / whole, width * 0.95, bottom=height, color=colors[phase])
                height += seconds / whole
            label = f"{way}\n{comparison.seconds(way):.2f} s"
            axes.text(position + offset, height, label, ha="center", va="bottom", fontsize=7)
    axes.set_xticks(range(len(comparisons)), [comparison.model for comparison in comparisons])
    axes.set_ylabel(f"CPU seconds, as a share of stock's ({baseline})")
    axes.set_title("Optimization time by phase")
    axes.margins(y=0.12)
    patches = [Rectangle((0, 0), 1, 1, color=colors[phase]) for phase in reversed(PHASES)]
    figure.legend(patches, list(reversed(PHASES)), loc="outside right center", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _model(comparison: Comparison) -> dict[str, object]:
    agreement = comparison.agreement
    return {
        "model": comparison.model,
        "ratio": comparison.ratio,
        "rewriting_ratio": comparison.rewriting_ratio,
        "values": None if agreement is None else vars(agreement),
        "faults": comparison.faults(),
        "ways": {
            way: {
                "seconds": comparison.seconds(way),
                "rewriting": comparison.rewriting(way),
                "phases": comparison.phases(way),
                "runs": [_run(run) for run in runs],
            }
            for way, runs in comparison.runs.items()
        },
    }


def _run(run: Measurement) -> dict[str, object]:
    return {key: value for key, value in vars(run).items() if key not in ("way", "graph")}


def _processor() -> str:
    """Return the processor's name, if the system reports it."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor()
