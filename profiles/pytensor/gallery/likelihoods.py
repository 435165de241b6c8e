"""Models with unusual likelihoods: of counts, of classes, of mixtures, and of times to events."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def _regressors(rng: np.random.Generator, rows: int) -> np.ndarray:
    return np.column_stack([np.ones(rows), rng.normal(size=(rows, 2))])


def zero_inflated_poisson() -> pm.Model:
    """Build a model of counts with more zeros than a Poisson distribution has."""
    rng = np.random.default_rng(31)
    x = _regressors(rng, 500)
    y = rng.poisson(np.exp(0.5 + 0.3 * x[:, 1])) * (rng.random(500) < 0.7)
    with pm.Model() as model:
        weights = pm.Normal("weights", 0, 1, shape=3)
        share = pm.Beta("share", 2, 2)
        pm.ZeroInflatedPoisson("y", psi=share, mu=pt.exp(x @ weights), observed=y)
    return model


def zero_inflated_negative_binomial() -> pm.Model:
    """Build a model of overdispersed counts with additional zeros, whose share depends on regressors."""
    rng = np.random.default_rng(32)
    x = _regressors(rng, 500)
    y = rng.negative_binomial(2, 0.4, 500) * (rng.random(500) < 0.6)
    with pm.Model() as model:
        weights, zeros = pm.Normal("weights", 0, 1, shape=3), pm.Normal("zeros", 0, 1, shape=3)
        alpha = pm.Exponential("alpha", 0.5)
        share = pm.math.sigmoid(x @ zeros)
        pm.ZeroInflatedNegativeBinomial("y", psi=share, mu=pt.exp(x @ weights), alpha=alpha, observed=y)
    return model


def hurdle_gamma() -> pm.Model:
    """Build a model of amounts that are zero or gamma distributed."""
    rng = np.random.default_rng(33)
    y = rng.gamma(2.0, 1.5, 300) * (rng.random(300) < 0.6)
    with pm.Model() as model:
        share, alpha, beta = pm.Beta("share", 1, 1), pm.Exponential("alpha", 1), pm.Exponential("beta", 1)
        pm.HurdleGamma("y", psi=share, alpha=alpha, beta=beta, observed=y)
    return model


def negative_binomial() -> pm.Model:
    """Build a regression for overdispersed counts."""
    rng = np.random.default_rng(34)
    x = _regressors(rng, 400)
    with pm.Model() as model:
        weights = pm.Normal("weights", 0, 1, shape=3)
        alpha = pm.HalfNormal("alpha", 5)
        pm.NegativeBinomial("y", mu=pt.exp(x @ weights), alpha=alpha, observed=rng.negative_binomial(3, 0.5, 400))
    return model


def beta_binomial() -> pm.Model:
    """Build a model of success rates that vary between groups."""
    rng = np.random.default_rng(35)
    trials = rng.integers(5, 40, 80)
    with pm.Model() as model:
        mean, total = pm.Beta("mean", 1, 1), pm.Exponential("total", 0.1)
        y = rng.binomial(trials, rng.beta(2, 3, 80))
        pm.BetaBinomial("y", n=trials, alpha=mean * total, beta=(1 - mean) * total, observed=y)
    return model


def dirichlet_multinomial() -> pm.Model:
    """Build a model of overdispersed counts in several classes."""
    rng = np.random.default_rng(36)
    y = np.stack([rng.multinomial(30, rng.dirichlet([2.0, 3.0, 4.0])) for _ in range(40)])
    with pm.Model() as model:
        shares = pm.Dirichlet("shares", np.ones(3))
        total = pm.LogNormal("total", 1, 1)
        pm.DirichletMultinomial("y", n=np.full(40, 30), a=shares * total, observed=y)
    return model


def ordered_probit() -> pm.Model:
    """Build an ordinal regression with a probit link."""
    rng = np.random.default_rng(37)
    x = rng.normal(size=300)
    y = np.digitize(x + rng.normal(size=300), [-1.0, 0.0, 1.0])
    with pm.Model() as model:
        cuts = pm.Normal(
            "cuts",
            0,
            2,
            shape=3,
            transform=pm.distributions.transforms.ordered,
            initval=np.array([-1.0, 0.0, 1.0]),
        )
        slope = pm.Normal("slope", 0, 1)
        pm.OrderedProbit("y", eta=slope * x, cutpoints=cuts, observed=y)
    return model


def categorical() -> pm.Model:
    """Build a softmax regression for one of several classes."""
    rng = np.random.default_rng(38)
    x = _regressors(rng, 300)
    with pm.Model() as model:
        weights = pm.Normal("weights", 0, 1, shape=(3, 4))
        pm.Categorical("y", p=pm.math.softmax(x @ weights, axis=-1), observed=rng.integers(0, 4, 300))
    return model


_ordered = pm.distributions.transforms.ordered


def poissons() -> pm.Model:
    """Build a model with a mixture of two Poisson distributions."""
    rng = np.random.default_rng(41)
    y = rng.poisson(np.where(rng.random(300) < 0.4, 2.0, 9.0))
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(2))
        rates = pm.LogNormal("rates", 1, 1, shape=2, initval=np.array([2.0, 8.0]))
        pm.Mixture("y", w=weights, comp_dists=pm.Poisson.dist(rates, shape=2), observed=y)
    return model


def different_distributions() -> pm.Model:
    """Build a model with a mixture of a normal and a heavy-tailed distribution."""
    rng = np.random.default_rng(42)
    with pm.Model() as model:
        share = pm.Beta("share", 2, 2)
        center, spread = pm.Normal("center", 0, 2), pm.HalfNormal("spread", 2)
        components = [pm.Normal.dist(center, spread), pm.StudentT.dist(nu=3, mu=center, sigma=5 * spread)]
        pm.Mixture("y", w=pt.stack([share, 1 - share]), comp_dists=components, observed=rng.standard_t(3, size=200))
    return model


def regressions() -> pm.Model:
    """Build a mixture of regressions."""
    rng = np.random.default_rng(43)
    x = rng.normal(size=250)
    y = np.where(rng.random(250) < 0.5, 2 * x, -x) + 0.3 * rng.normal(size=250)
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 2, shape=2, transform=_ordered, initval=np.array([-1.0, 1.0]))
        noise = pm.HalfNormal("noise", 1)
        weights = pm.Dirichlet("weights", np.ones(2))
        pm.NormalMixture("y", w=weights, mu=x[:, None] * slopes, sigma=noise, observed=y)
    return model


def normal_vectors() -> pm.Model:
    """Build a model with a mixture of multivariate normal distributions."""
    rng = np.random.default_rng(44)
    y = np.concatenate([rng.normal(-2, 1, (60, 2)), rng.normal(2, 1, (60, 2))])
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(2))
        centers = pm.Normal("centers", 0, 3, shape=(2, 2))
        components = [pm.MvNormal.dist(centers[number], np.eye(2)) for number in range(2)]
        pm.Mixture("y", w=weights, comp_dists=components, observed=y)
    return model


def weibull_censored() -> pm.Model:
    """Build censored Weibull times."""
    rng = np.random.default_rng(51)
    x, y = rng.normal(size=200), 3 * rng.weibull(1.5, 200)
    with pm.Model() as model:
        slope, shape = pm.Normal("slope", 0, 1), pm.HalfNormal("shape", 2)
        times = pm.Weibull.dist(alpha=shape, beta=pt.exp(1 + slope * x))
        pm.Censored("y", times, lower=None, upper=4.0, observed=np.minimum(y, 4.0))
    return model


def exponential_potential() -> pm.Model:
    """Build a model of exponential times to events, some of which are censored; its log likelihood is a potential."""
    rng = np.random.default_rng(52)
    x, time, ended = rng.normal(size=300), rng.exponential(2.0, 300), rng.random(300) < 0.7
    with pm.Model() as model:
        weights = pm.Normal("weights", 0, 1, shape=2)
        log_rate = weights[0] + weights[1] * x
        pm.Potential("survival", (ended * log_rate - pt.exp(log_rate) * time).sum())
    return model


def piecewise_hazard() -> pm.Model:
    """Build a model of times to events with a piecewise constant hazard; events are Poisson counts."""
    rng = np.random.default_rng(53)
    people, intervals = 60, 8
    end = rng.integers(1, intervals, people)
    exposed = (np.arange(intervals) <= end[:, None]).astype("float64")
    died = (np.arange(intervals) == end[:, None]) & (rng.random((people, 1)) < 0.7)
    x = rng.normal(size=people)
    with pm.Model() as model:
        hazard = pm.Gamma("hazard", 1, 1, shape=intervals)
        slope = pm.Normal("slope", 0, 1)
        rate = pt.exp(slope * x)[:, None] * hazard * exposed + 1e-10
        pm.Poisson("died", rate, observed=died.astype("int64"))
    return model


def lognormal_potential() -> pm.Model:
    """Build a model of log-normal times to events; censored times contribute the survival function."""
    rng = np.random.default_rng(54)
    time, ended = rng.lognormal(1, 0.8, 250), rng.random(250) < 0.6
    with pm.Model() as model:
        center, spread = pm.Normal("center", 0, 2), pm.HalfNormal("spread", 1)
        pm.LogNormal("observed", center, spread, observed=time[ended])
        pm.Potential("censored", pt.log(0.5 * pt.erfc((np.log(time[~ended]) - center) / (spread * np.sqrt(2)))).sum())
    return model


def truncated_normal() -> pm.Model:
    """Build a model of measurements if only large values are observed."""
    rng = np.random.default_rng(55)
    y = rng.normal(1, 1, 400)
    with pm.Model() as model:
        center, spread = pm.Normal("center", 0, 2), pm.HalfNormal("spread", 2)
        pm.TruncatedNormal("y", center, spread, lower=0.0, observed=y[y > 0])
    return model
