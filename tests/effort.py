"""How many examples tests make, those of Hypothesis and of the fuzzers: all that a test asks for, or a part of them."""

from __future__ import annotations

import os

#: Tests make one of so many of their examples, but at least the fewest, with OPTDB_TESTS=quick, which `make test` and
#: `.ci/run` set. Seeds are fixed: more examples are mostly the same ones in each run. Thorough tests are left out then.
SHARE = 4
FEWEST = 2


def is_quick() -> bool:
    """Tell whether tests make a part of their examples only."""
    return os.environ.get("OPTDB_TESTS") == "quick"


def examples(count: int) -> int:
    """Return the number of examples to make in place of `count`: ``@settings(max_examples=examples(100))``."""
    share = SHARE if is_quick() else 1
    return min(count, max(FEWEST, count // share))
