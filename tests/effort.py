"""How many examples tests make, those of Hypothesis and of the fuzzers: all that a test asks for, or a part of them."""

from __future__ import annotations

import os

#: Tests make one of so many of their examples, but at least the fewest: with OPTDB_TESTS=quick, which `make test` sets,
#: and with OPTDB_TESTS=half, which `.ci/run` does. Their seeds are fixed: more examples are the same ones in each run.
SHARES = {"quick": 4, "half": 2}
FEWEST = 5


def examples(count: int) -> int:
    """Return the number of examples to make in place of `count`: ``@settings(max_examples=examples(100))``."""
    return min(count, max(FEWEST, count // SHARES.get(os.environ.get("OPTDB_TESTS", ""), 1)))
