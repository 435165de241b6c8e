"""Writes comparisons to files: all raw numbers as JSON, and the seconds of the phases as a plot of stacked bars."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import theano

import optdb
from profiles import terminal
from profiles.measure import PHASES, Measurement
from profiles.report import OPTDB, STOCK, Comparison, add_legend, draw_shares, geometric_mean


def environment() -> dict[str, object]:
    """Return the versions, the machine and the settings that the measurements depend on."""
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


def numbers(comparisons: list[Comparison], baseline: str) -> dict[str, object]:
    """Return the contents of a JSON file: all runs of each model, the medians and the verdict."""
    return {
        "environment": environment(),
        "baseline": baseline,
        "models": [_model(comparison) for comparison in comparisons],
        "geometric_mean": {
            "whole": geometric_mean(comparison.ratio for comparison in comparisons),
            "rewriting": geometric_mean(comparison.rewriting_ratio for comparison in comparisons),
        },
    }


def write_plot(comparisons: list[Comparison], baseline: str, path: Path) -> None:
    """Draw two stacked bars for each model, as shares of stock Theano's time."""
    bars = [
        (comparison.model, [(way, comparison.seconds(way), comparison.phases(way)) for way in (STOCK, OPTDB)])
        for comparison in comparisons
    ]
    with terminal.drawing(path, (3 + 1.3 * len(comparisons), 6)) as (figure, axes):
        draw_shares(axes, bars, PHASES, "tab20")
        axes.set_ylabel(f"CPU seconds, as a share of stock's ({baseline})")
        axes.set_title("Optimization time by phase")
        add_legend(figure, PHASES, "tab20")


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
