"""PyMC3 mixtures, processes and regressions: the log density with its gradient."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import theano.tensor as tt

from models.zoo.pymc3_base import log_density


@log_density("pymc3_dirichlet")
def dirichlet(pm: ModuleType, rng: np.random.RandomState, width: int = 4) -> Any:
    """A Dirichlet distribution with parameters of one."""
    with pm.Model() as model:
        pm.Dirichlet("w", np.ones(width))
    return model


@log_density("pymc3_normal_mixture")
def normal_mixture(pm: ModuleType, rng: np.random.RandomState, rows: int = 40, parts: int = 3) -> Any:
    """A mixture of normals with Dirichlet weights."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(parts))
        mu = pm.Normal("mu", np.arange(parts), 2, shape=parts)
        tau = pm.Gamma("tau", 1, 1, shape=parts)
        pm.NormalMixture("obs", w, mu, tau=tau, observed=rng.standard_normal(rows))
    return model


@log_density("pymc3_mixture_of_kinds")
def mixture_of_kinds(pm: ModuleType, rng: np.random.RandomState, rows: int = 30) -> Any:
    """A mixture of distributions of different kinds."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.array([1.0, 2.0, 3.0]))
        rate, shape = pm.Exponential("rate", 1), pm.HalfNormal("shape", 2)
        kinds = [pm.Exponential.dist(rate), pm.Gamma.dist(shape, 1), pm.Lognormal.dist(0, shape)]
        pm.Mixture("obs", w, kinds, observed=rng.gamma(2, 1, rows) + 0.05)
    return model


@log_density("pymc3_dirichlet_process")
def dirichlet_process(pm: ModuleType, rng: np.random.RandomState, rows: int = 30, parts: int = 6) -> Any:
    """A truncated stick-breaking Dirichlet process."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1, 1)
        beta = pm.Beta("beta", 1, alpha, shape=parts)
        sticks = beta * tt.concatenate([[1], tt.extra_ops.cumprod(1 - beta)[:-1]])
        w = pm.Deterministic("w", sticks / sticks.sum())  # a mixture whose weights do not sum to one is impossible
        tau = pm.Gamma("tau", 1, 1, shape=parts)
        mu = pm.Normal("mu", 0, tau=tau, shape=parts)
        pm.NormalMixture("obs", w, mu, tau=tau, observed=rng.standard_normal(rows))
    return model


@log_density("pymc3_topics")
def topics(pm: ModuleType, rng: np.random.RandomState, documents: int = 5, vocabulary: int = 8, parts: int = 3) -> Any:
    """A topic model of documents; the topic of each word is marginalized."""
    words = rng.randint(vocabulary, size=(documents, 12))
    with pm.Model() as model:
        theta = pm.Dirichlet("theta", np.full((documents, parts), 0.7), shape=(documents, parts))
        phi = pm.Dirichlet("phi", np.full((parts, vocabulary), 0.7), shape=(parts, vocabulary))
        rows = np.repeat(np.arange(documents), 12)
        log_p = tt.log(theta[rows]) + tt.log(phi[:, words.ravel()].T)
        pm.Potential("words", pm.math.logsumexp(log_p, axis=1).sum())
    return model


@log_density("pymc3_multinomial")
def multinomial(pm: ModuleType, rng: np.random.RandomState, rows: int = 6, width: int = 4) -> Any:
    """Overdispersed multinomial counts."""
    observed = rng.multinomial(10, np.full(width, 1 / width), size=rows)
    with pm.Model() as model:
        share = pm.Dirichlet("share", np.ones(width))
        concentration = pm.Lognormal("concentration", 1, 1)
        p = pm.Dirichlet("p", share * concentration, shape=(rows, width))
        pm.Multinomial("obs", n=10, p=p, observed=observed)
    return model


@log_density("pymc3_gp_marginal")
def gp_marginal(pm: ModuleType, rng: np.random.RandomState, rows: int = 15) -> Any:
    """A marginal Gaussian process with noise, and sums and products of kernels."""
    x = np.linspace(0, 3, rows)[:, None]
    with pm.Model() as model:
        length, period = pm.Gamma("length", 2, 1), pm.Gamma("period", 4, 3)
        eta = pm.HalfCauchy("eta", 5)
        kernel = eta**2 * pm.gp.cov.Matern52(1, length) + pm.gp.cov.Periodic(1, period=period, ls=length)
        process = pm.gp.Marginal(mean_func=pm.gp.mean.Linear(coeffs=0.5), cov_func=kernel)
        process.marginal_likelihood("obs", X=x, y=np.sin(x.ravel()), noise=pm.HalfCauchy("noise", 5))
    return model


@log_density("pymc3_gp_latent")
def gp_latent(pm: ModuleType, rng: np.random.RandomState, rows: int = 12) -> Any:
    """A latent Gaussian process of two inputs with a logistic link."""
    x = rng.uniform(size=(rows, 2))
    with pm.Model() as model:
        length = pm.InverseGamma("length", 3, 2, shape=2)
        process = pm.gp.Latent(cov_func=pm.HalfNormal("eta", 1) ** 2 * pm.gp.cov.ExpQuad(2, ls=length))
        f = process.prior("f", X=x)
        pm.Bernoulli("obs", p=pm.math.sigmoid(f), observed=rng.randint(2, size=rows))
    return model


@log_density("pymc3_gp_sparse")
def gp_sparse(pm: ModuleType, rng: np.random.RandomState, rows: int = 20, points: int = 5) -> Any:
    """A sparse Gaussian process whose inducing points are learned."""
    x = np.sort(rng.uniform(0, 3, (rows, 1)), axis=0)
    with pm.Model() as model:
        length, eta = pm.Gamma("length", 2, 1), pm.HalfCauchy("eta", 5)
        process = pm.gp.MarginalSparse(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, length), approx="FITC")
        inducing = pm.Flat("inducing", shape=(points, 1), testval=np.linspace(0, 3, points)[:, None])
        process.marginal_likelihood("obs", X=x, Xu=inducing, y=np.sin(x.ravel()), noise=pm.HalfCauchy("noise", 5))
    return model


@log_density("pymc3_volatility")
def volatility(pm: ModuleType, rng: np.random.RandomState, rows: int = 40) -> Any:
    """Stochastic volatility: a Gaussian random walk, and observations with heavy tails."""
    with pm.Model() as model:
        step = pm.Exponential("step", 10)
        walk = pm.GaussianRandomWalk("walk", sigma=step, shape=rows)
        nu = pm.Exponential("nu", 0.1)
        pm.StudentT("obs", nu, lam=tt.exp(-2 * walk), observed=0.1 * rng.standard_normal(rows))
    return model


@log_density("pymc3_series")
def series(pm: ModuleType, rng: np.random.RandomState, rows: int = 30) -> Any:
    """An autoregressive process, a GARCH(1, 1) whose Scan computes the variance, and skewed and angular noise."""
    with pm.Model() as model:
        rho = pm.Uniform("rho", -1, 1, shape=2)
        pm.AR("ar", rho, sigma=pm.HalfNormal("sigma", 1), observed=rng.standard_normal(rows))
        omega, alpha = pm.HalfNormal("omega", 1), pm.Uniform("alpha", 0, 1)
        pm.GARCH11(
            "garch", omega, alpha, 0.5 * (1 - alpha), initial_vol=np.float64(1), observed=rng.standard_normal(rows)
        )
        pm.SkewNormal("skewed", mu=rho[0], sigma=1, alpha=omega, observed=rng.standard_normal(rows))
        pm.VonMises("angle", mu=rho[1], kappa=2 + alpha, observed=rng.uniform(-3, 3, rows))
    return model


@log_density("pymc3_switchpoint")
def switchpoint(pm: ModuleType, rng: np.random.RandomState, years: int = 40) -> Any:
    """Mining disasters: a rate that changes in a random year, which is constant for the gradient."""
    with pm.Model() as model:
        year = pm.DiscreteUniform("year", 0, years)
        early, late = pm.Exponential("early", 1), pm.Exponential("late", 1)
        rate = pm.math.switch(year >= np.arange(years), early, late)
        pm.Poisson("obs", rate, observed=rng.poisson(2, years))
    return model


@log_density("pymc3_eight_schools")
def eight_schools(pm: ModuleType, rng: np.random.RandomState) -> Any:
    """Eight schools, in non-centred form."""
    effects = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        offset = pm.Normal("offset", 0, 1, shape=len(effects))
        theta = pm.Deterministic("theta", mu + tau * offset)
        pm.Normal("obs", theta, errors, observed=effects)
    return model


@log_density("pymc3_radon")
def radon(pm: ModuleType, rng: np.random.RandomState, counties: int = 10, houses: int = 60) -> Any:
    """Intercepts and slopes that vary by county."""
    county, floor = rng.randint(counties, size=houses), rng.randint(2, size=houses)
    with pm.Model() as model:
        mu_a, mu_b = pm.Normal("mu_a", 0, 100), pm.Normal("mu_b", 0, 100)
        sigma_a, sigma_b = pm.HalfCauchy("sigma_a", 5), pm.HalfCauchy("sigma_b", 5)
        a = pm.Normal("a", mu_a, sigma_a, shape=counties)
        b = pm.Normal("b", mu_b, sigma_b, shape=counties)
        eps = pm.HalfCauchy("eps", 5)
        pm.StudentT("obs", nu=4, mu=a[county] + b[county] * floor, sigma=eps, observed=rng.standard_normal(houses))
    return model


@log_density("pymc3_horseshoe")
def horseshoe(pm: ModuleType, rng: np.random.RandomState, rows: int = 40, columns: int = 12) -> Any:
    """A logistic regression with a regularized horseshoe prior."""
    x = rng.standard_normal((rows, columns))
    with pm.Model() as model:
        tau = pm.HalfStudentT("tau", 2, 0.1)
        scales = pm.HalfStudentT("scales", 5, shape=columns)
        slab = pm.InverseGamma("slab", alpha=1, beta=1)
        regularized = scales * tt.sqrt(slab / (slab + tau**2 * scales**2))
        z = pm.Normal("z", 0, 1, shape=columns)
        logits = tt.dot(x, z * tau * regularized) + pm.Normal("intercept", 0, 2)
        pm.Bernoulli("obs", logit_p=logits, observed=rng.randint(2, size=rows))
    return model


@log_density("pymc3_counts")
def counts(pm: ModuleType, rng: np.random.RandomState, rows: int = 50) -> Any:
    """Zero-inflated and overdispersed counts with bounded parameters."""
    x = rng.standard_normal((rows, 3))
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 1, shape=3)
        mu = tt.exp(tt.dot(x, slopes))
        psi = pm.Beta("psi", 2, 2)
        alpha = pm.Bound(pm.Normal, lower=0.1)("alpha", mu=2, sigma=1)
        pm.ZeroInflatedPoisson("visits", psi, mu, observed=rng.poisson(2, rows))
        pm.NegativeBinomial("days", mu, alpha, observed=rng.poisson(4, rows))
        pm.ZeroInflatedBinomial("hits", psi, 9, tt.nnet.sigmoid(slopes[0]), observed=rng.randint(9, size=rows))
    return model


@log_density("pymc3_ordered")
def ordered(pm: ModuleType, rng: np.random.RandomState, rows: int = 40, levels: int = 5) -> Any:
    """An ordered logistic regression whose cut points have an ordered transform."""
    x = rng.standard_normal(rows)
    with pm.Model() as model:
        cuts = pm.Normal(
            "cuts",
            0,
            2,
            shape=levels - 1,
            transform=pm.distributions.transforms.ordered,
            testval=np.linspace(-1, 1, levels - 1),
        )
        slope = pm.Laplace("slope", 0, 1)
        pm.OrderedLogistic("obs", eta=slope * x, cutpoints=cuts, observed=rng.randint(levels, size=rows))
    return model


@log_density("pymc3_survival")
def survival(pm: ModuleType, rng: np.random.RandomState, rows: int = 40) -> Any:
    """Weibull survival times; a Potential models the censored ones."""
    times, censored = rng.weibull(1.5, rows) + 0.1, rng.uniform(size=rows) > 0.7
    group = rng.randint(3, size=rows)
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2, 1)
        baseline = pm.Normal("baseline", 0, 2, shape=3)
        beta = tt.exp(baseline[group])
        pm.Weibull("seen", alpha, beta[~censored], observed=times[~censored])
        pm.Potential("censored", -tt.sum((times[censored] / beta[censored]) ** alpha))
        pm.Gumbel("gumbel", baseline, 1, observed=rng.standard_normal((5, 3)))
    return model


@log_density("pymc3_correlated")
def correlated(pm: ModuleType, rng: np.random.RandomState, rows: int = 30, width: int = 3) -> Any:
    """Correlated normals with an LKJ prior over the Cholesky factor."""
    with pm.Model() as model:
        packed = pm.LKJCholeskyCov("packed", n=width, eta=2, sd_dist=pm.HalfCauchy.dist(2.5))
        chol = pm.expand_packed_triangular(width, packed)
        mu = pm.Normal("mu", 0, 10, shape=width)
        pm.MvNormal("obs", mu, chol=chol, observed=rng.standard_normal((rows, width)))
    return model


@log_density("pymc3_factorization")
def factorization(pm: ModuleType, rng: np.random.RandomState, rows: int = 8, columns: int = 6, rank: int = 2) -> Any:
    """A factorization of a matrix of ratings, many of which are missing."""
    ratings = rng.uniform(-1, 1, (rows, columns))
    seen = np.nonzero(rng.uniform(size=ratings.shape) > 0.3)
    with pm.Model() as model:
        precision = pm.Wald("precision", 1, 1, shape=rank)
        users = pm.MvNormal("users", np.zeros(rank), tau=tt.diag(precision), shape=(rows, rank))
        items = pm.Normal("items", 0, 1, shape=(columns, rank))
        pm.Normal("obs", tt.dot(users, items.T)[seen], 0.5, observed=ratings[seen])
    return model
