"""Makes some runs in a separate process: ``python -m fuzzing.pytensor.worker SEED RUNS STEPS``.

If a run differs, the process prints the shortest such run as a program, and its exit status is 1.
"""

from __future__ import annotations

import functools
import sys
import warnings

from fuzzing.machines import end_with_failure, make_runs
from fuzzing.pytensor.machine import UpdatedVariables
from optdb.pytensor import host_groups, loops

__all__ = ["run"]


def run(number: int, runs: int, steps: int, *, shorten: bool = True) -> None:
    """Make random runs of at most `steps` steps; raise the error of a failing run, see `make_runs`."""
    # Import these modules before the runs, because an interrupt during an import would leave a module half initialized.
    host_groups.compile_errors()
    # Python's linker compiles nothing.
    host_groups.linkers = lambda: iter(["py"])
    # Run small loops on the device, whatever its kind.
    loops.LEAST_WORK = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make_runs(type("UpdatedVariables", (UpdatedVariables,), {}), number, runs, steps, shorten)


def main() -> None:
    """Make the number of runs that is given on the command line."""
    number, runs, steps = map(int, sys.argv[1:])
    end_with_failure(functools.partial(run, number, runs, steps))


if __name__ == "__main__":
    main()
