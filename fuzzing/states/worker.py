"""Makes some runs in a separate process: ``python -m fuzzing.states.worker SEED RUNS STEPS DEVICE KERNELS MEMORY``.

If a run differs, the process prints the shortest such run as a program, and its exit status is 1.
"""

from __future__ import annotations

import functools
import sys

from fuzzing.machines import end_with_failure, make_runs
from fuzzing.profiles import replace_profile, use_smallest_batches
from fuzzing.states.machine import SharedVariables

__all__ = ["run"]


def run(number: int, runs: int, steps: int, device: str = "auto", *, shorten: bool = True) -> None:
    """Make random runs of at most `steps` steps on a device; raise the error of a failing run, see `make_runs`."""
    make_runs(type("SharedVariables", (SharedVariables,), {"device": device}), number, runs, steps, shorten)


def main() -> None:
    """Make the number of runs that is given on the command line."""
    number, runs, steps, device, kernels, memory = sys.argv[1:]
    replace_profile(device, kernels, memory)
    use_smallest_batches(device, keeps_gil=int(number) % 2 == 1)
    end_with_failure(functools.partial(run, int(number), int(runs), int(steps), device))


if __name__ == "__main__":
    main()
