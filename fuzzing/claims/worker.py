"""Computes examples: ``python -m fuzzing.claims.worker WAY SEED EXAMPLES DEVICE [OPERATION ...]``.

If an example differs, the process prints the smallest such example, and its exit status is 1.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection

from hypothesis import given, seed

from fuzzing.claims.cases import Case
from fuzzing.claims.comparing import compare
from fuzzing.claims.strategies import cases
from fuzzing.machines import chosen_settings, end_with_failure
from fuzzing.profiles import use_smallest_batches

__all__ = ["run"]


def run(way: str, number: int, examples: int, device: str = "auto", without: Collection[str] = ()) -> None:
    """Compare random cases that are computed in one way; raise the error of the smallest failing example."""

    @seed(number)
    @chosen_settings(examples)
    @given(cases(without=without))
    def examine(case: Case) -> None:
        compare(case, way, device)

    examine()


def main() -> None:
    """Run the number of examples that is given on the command line."""
    way, number, examples, device, *without = sys.argv[1:]
    use_smallest_batches(device, keeps_gil=int(number) % 2 == 1)
    end_with_failure(functools.partial(run, way, int(number), int(examples), device, without))


if __name__ == "__main__":
    main()
