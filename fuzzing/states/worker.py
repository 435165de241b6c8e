"""Some runs in a process of their own: ``python -m fuzzing.states.worker SEED RUNS STEPS DEVICE KERNELS MEMORY``.

It ends with status 1 where a run differs, and prints the shortest one that was found, as a program.
"""

from __future__ import annotations

import sys
import traceback

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from fuzzing.profiles import replace_profile, use_smallest_batches
from fuzzing.states.machine import SharedVariables

__all__ = ["run"]


def run(number: int, runs: int, steps: int, device: str = "auto", *, shorten: bool = True) -> None:
    """Make random runs.

    Parameters
    ----------
    number : int
        The seed.
    runs : int
        How many.
    steps : int
        The most steps of a run.
    device : str
        On which device, as `optdb.mode` names it.
    shorten : bool
        Whether to search for the shortest run that fails, which takes many times as long as to find one.

    Raises
    ------
    Exception
        What the shortest run that fails raises, or the first one.
    """
    machine = seed(number)(type("SharedVariables", (SharedVariables,), {"device": device}))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=runs,
            stateful_step_count=steps,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink) if shorten else (Phase.generate,),
        ),
    )


def main() -> None:
    """Run what the command line says."""
    number, runs, steps, device, kernels, memory = sys.argv[1:]
    replace_profile(device, kernels, memory)
    use_smallest_batches(device)
    try:
        run(int(number), int(runs), int(steps), device)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
