"""Builds twelve PyMC models with seeded data: ``build("logistic", 200_000)``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profiles.pytensor.models import latent, regression, series

if TYPE_CHECKING:
    import pymc

__all__ = ["MODELS", "Entry", "build", "entry"]


@dataclass(frozen=True)
class Entry:
    """A model with a size in units of `unit`; the size `small` is for tests, and with `large`, a device is faster."""

    name: str
    builder: Callable[[int], pymc.Model]
    unit: str
    small: int
    large: int


MODELS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("radon", regression.radon, "counties", 8, 10_000),
        Entry("logistic", regression.logistic, "observations", 50, 200_000),
        Entry("mixture", latent.gaussian, "observations", 60, 100_000),
        Entry("dp_mixture", latent.dirichlet_process, "observations", 40, 20_000),
        Entry("gp", series.gaussian_process, "observations", 12, 800),
        Entry("volatility", series.stochastic_volatility, "days", 30, 20_000),
        Entry("ar", series.autoregression, "steps", 40, 100_000),
        Entry("ordinal", regression.ordinal, "observations", 50, 10_000),
        Entry("multinomial", regression.multinomial, "observations", 30, 20_000),
        Entry("factorization", latent.matrix_factorization, "ratings", 60, 100_000),
        Entry("bayesian_net", latent.bayesian_net, "observations", 40, 20_000),
        Entry("lkj", latent.lkj, "observations", 30, 20_000),
    )
}


def entry(name: str) -> Entry:
    """Return the entry of a model; if there is no such model, raise a KeyError that lists the names."""
    if name not in MODELS:
        raise KeyError(f"no model is named {name!r}; known are: {', '.join(MODELS)}")
    return MODELS[name]


def build(name: str, size: int | None = None) -> pymc.Model:
    """Build a model; the default size is the large one."""
    chosen = entry(name)
    return chosen.builder(chosen.large if size is None else size)
