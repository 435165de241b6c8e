"""Makes some runs in a separate process: ``python -m fuzzing.tiers.worker SEED RUNS STEPS``.

If a run differs, the process prints the run, and its exit status is 1.
"""

from __future__ import annotations

import functools
import gc
import sys
import warnings

from fuzzing.machines import end_with_failure, make_runs
from fuzzing.tiers.machine import TieredFunctions
from optdb.host.theano.clinker.tiers.thunks import CompilerWarning

__all__ = ["run"]


def run(number: int, runs: int, steps: int) -> None:
    """Make random runs of at most `steps` steps; raise the error of the first failing run without shortening it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompilerWarning)
        make_runs(type("TieredFunctions", (TieredFunctions,), {}), number, runs, steps, shorten=False)


def main() -> None:
    """Make the number of runs that is given on the command line."""
    number, runs, steps = map(int, sys.argv[1:])
    gc.freeze()  # makes garbage collections faster
    end_with_failure(functools.partial(run, number, runs, steps))


if __name__ == "__main__":
    main()
