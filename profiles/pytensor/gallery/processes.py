"""Models with Gaussian processes or normal vectors: exact, approximate, or with Kronecker products."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

_X = np.linspace(0, 10, 40)


def latent_process() -> pm.Model:
    """Build a model of counts whose logarithmic rate is a Gaussian process."""
    rng = np.random.default_rng(71)
    with pm.Model() as model:
        length = pm.InverseGamma("length", 5, 5)
        process = pm.gp.Latent(cov_func=pm.gp.cov.Matern52(1, ls=length))
        rate = pt.exp(process.prior("f", X=_X[:, None]))
        pm.Poisson("y", rate, observed=rng.poisson(2.0, 40))
    return model


def hilbert_space() -> pm.Model:
    """Build a Gaussian process by a Hilbert space approximation."""
    rng = np.random.default_rng(72)
    x = np.linspace(-5, 5, 300)
    with pm.Model() as model:
        length, height = pm.InverseGamma("length", 5, 5), pm.HalfNormal("height", 1)
        process = pm.gp.HSGP(m=[20], c=1.5, cov_func=height**2 * pm.gp.cov.ExpQuad(1, ls=length))
        pm.Normal("y", process.prior("f", X=x[:, None]), 0.3, observed=np.sin(x) + 0.3 * rng.normal(size=300))
    return model


def hilbert_space_periodic() -> pm.Model:
    """Build a periodic Gaussian process by a Hilbert space approximation."""
    rng = np.random.default_rng(73)
    x = np.linspace(0, 10, 200)
    with pm.Model() as model:
        scale, length = pm.HalfNormal("scale", 1), pm.InverseGamma("length", 5, 5)
        process = pm.gp.HSGPPeriodic(m=10, scale=scale, cov_func=pm.gp.cov.Periodic(1, period=2, ls=length))
        pm.Normal("y", process.prior("f", X=x[:, None]), 0.3, observed=np.sin(np.pi * x) + rng.normal(size=200))
    return model


def sparse_process() -> pm.Model:
    """Build a Gaussian process with inducing points."""
    rng = np.random.default_rng(74)
    with pm.Model() as model:
        length, noise = pm.Gamma("length", 3, 2), pm.HalfNormal("noise", 1)
        process = pm.gp.MarginalApprox(approx="FITC", cov_func=pm.gp.cov.ExpQuad(1, ls=length))
        y = np.sin(_X) + 0.2 * rng.normal(size=40)
        process.marginal_likelihood("y", X=_X[:, None], Xu=_X[::5, None], y=y, sigma=noise)
    return model


def kronecker_process() -> pm.Model:
    """Build a Gaussian process on a grid, computed with the eigenvalues of each axis's covariance."""
    rng = np.random.default_rng(75)
    rows, columns = np.linspace(0, 3, 8)[:, None], np.linspace(0, 2, 6)[:, None]
    with pm.Model() as model:
        lengths, noise = pm.Gamma("lengths", 3, 2, shape=2), pm.HalfNormal("noise", 1)
        covariances = [pm.gp.cov.ExpQuad(1, ls=lengths[number]) for number in range(2)]
        process = pm.gp.MarginalKron(cov_funcs=covariances)
        process.marginal_likelihood("y", Xs=[rows, columns], y=rng.normal(size=48), sigma=noise)
    return model


def kronecker_normal() -> pm.Model:
    """Build a normal vector whose covariance is a Kronecker product of matrices given by Cholesky factors."""
    rng = np.random.default_rng(76)
    with pm.Model() as model:
        lengths = pm.Gamma("lengths", 3, 2, shape=2)
        points = [np.linspace(0, 3, 7)[:, None], np.linspace(0, 2, 5)[:, None]]
        matrices = [
            pm.gp.cov.ExpQuad(1, ls=lengths[number])(x) + 0.1 * pt.eye(len(x)) for number, x in enumerate(points)
        ]
        pm.KroneckerNormal("y", mu=np.zeros(35), covs=matrices, sigma=0.5, observed=rng.normal(size=35))
    return model


def matrix_normal() -> pm.Model:
    """Build a matrix with correlated rows and columns."""
    rng = np.random.default_rng(77)
    with pm.Model() as model:
        rows = pm.HalfNormal("rows", 1, shape=4)
        factor, _, _ = pm.LKJCholeskyCov("factor", n=3, eta=2, sd_dist=pm.Exponential.dist(1))
        pm.MatrixNormal(
            "y", mu=np.zeros((4, 3)), rowcov=pt.diag(rows**2), colchol=factor, observed=rng.normal(size=(4, 3))
        )
    return model


def covariance() -> pm.Model:
    """Build normal vectors with a covariance that depends on parameters."""
    rng = np.random.default_rng(78)
    with pm.Model() as model:
        spread, correlation = pm.HalfNormal("spread", 1, shape=2), pm.Uniform("correlation", -0.9, 0.9)
        across = correlation * spread[0] * spread[1]
        matrix = pt.stack([pt.stack([spread[0] ** 2, across]), pt.stack([across, spread[1] ** 2])])
        pm.MvNormal("y", np.zeros(2), cov=matrix, observed=rng.normal(size=(100, 2)))
    return model


def precision() -> pm.Model:
    """Build a model with a potential that depends on the determinant and the inverse of a matrix."""
    rng = np.random.default_rng(79)
    sample = np.cov(rng.normal(size=(50, 5)).T)
    with pm.Model() as model:
        scale, nugget = pm.HalfNormal("scale", 1, shape=5), pm.HalfNormal("nugget", 1)
        matrix = pt.outer(scale, scale) * 0.3 + pt.diag(scale**2 + nugget + 0.1)
        _, log_determinant = pt.linalg.slogdet(matrix)
        pm.Potential("y", -25 * (log_determinant + pt.trace(pt.linalg.inv(matrix) @ sample)))
    return model


def correlations() -> pm.Model:
    """Build normal vectors with mean zero and with an LKJ prior of their covariance."""
    rng = np.random.default_rng(80)
    with pm.Model() as model:
        factor, _, _ = pm.LKJCholeskyCov("factor", n=5, eta=1.5, sd_dist=pm.HalfNormal.dist(1))
        pm.MvNormal("y", np.zeros(5), chol=factor, observed=rng.normal(size=(60, 5)))
    return model
