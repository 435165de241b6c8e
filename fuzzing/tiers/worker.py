"""Some runs in a process of their own: ``python -m fuzzing.tiers.worker SEED RUNS STEPS``.

It ends with status 1 where a run differs, and prints the run.
"""

from __future__ import annotations

import gc
import sys
import traceback
import warnings

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from fuzzing.tiers.machine import TieredFunctions
from optdb.host.clinker.tiers.thunks import CompilerWarning

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
    gc.freeze()  # which makes collections quicker
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompilerWarning)
        run_state_machine_as_test(
            seed(number)(type("TieredFunctions", (TieredFunctions,), {})),
            settings=settings(
                max_examples=runs,
                stateful_step_count=steps,
                database=None,
                deadline=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
                phases=(Phase.generate,),
            ),
        )


def main() -> None:
    """Run what the command line says."""
    number, runs, steps = map(int, sys.argv[1:])
    try:
        run(number, runs, steps)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
