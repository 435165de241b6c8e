"""Sample a logistic regression of 100,000 rows with PyMC, on an OpenCL device or in PyTensor's default mode.

    python examples/sample.py
    python examples/sample.py --default

The example needs PyTensor and PyMC, but not Theano: pip install '.[pymc]'
"""

import argparse
import time

import numpy as np
import optdb.pytensor  # noqa: F401  registers mode OPENCL
import pymc as pm


def build(rows, seed=1):
    """Return a logistic regression whose outcomes depend on the first of 20 features."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, 20))
    answers = rng.random(rows) < 1 / (1 + np.exp(-features[:, 0]))
    with pm.Model() as model:
        weights = pm.Normal("weights", 0, 1, shape=20)
        pm.Bernoulli("answers", logit_p=pm.math.dot(features, weights), observed=answers)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--default", action="store_true", help="Compute by PyTensor's default mode.")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--draws", type=int, default=100)
    options = parser.parse_args()

    start = time.perf_counter()
    with build(options.rows):
        trace = pm.sample(
            options.draws,
            tune=options.draws,
            chains=1,
            random_seed=1,
            nuts_sampler="pymc",
            progressbar=False,
            compute_convergence_checks=False,
            compile_kwargs={} if options.default else {"mode": "OPENCL"},
        )
    seconds = time.perf_counter() - start
    first, *others = trace.posterior["weights"].mean(("chain", "draw")).values
    print(f"{seconds:.0f} s; the first weight is {first:.2f}, the others at most {max(map(abs, others)):.2f}")


if __name__ == "__main__":  # PyMC may start processes, which run this file again
    main()
