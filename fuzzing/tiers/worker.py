"""Some runs in a process of their own: ``python -m fuzzing.tiers.worker SEED RUNS STEPS``.

It ends with status 1 where a run differs, and prints the run.
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
    """Make random runs.

    A run is not shortened: threads take turns in another order each time.

    Parameters
    ----------
    number : int
        The seed.
    runs : int
        How many.
    steps : int
        The most steps of a run.

    Raises
    ------
    Exception
        What the first run that fails raises.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompilerWarning)
        make_runs(type("TieredFunctions", (TieredFunctions,), {}), number, runs, steps, shorten=False)


def main() -> None:
    """Run what the command line says."""
    number, runs, steps = map(int, sys.argv[1:])
    gc.freeze()  # which makes collections quicker
    end_with_failure(functools.partial(run, number, runs, steps))


if __name__ == "__main__":
    main()
