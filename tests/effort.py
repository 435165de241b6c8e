"""How many examples Hypothesis makes: all that a test asks for, or a part of them."""

from __future__ import annotations

import os

#: With OPTDB_TESTS=quick, which `make test` sets, tests make one of so many of their examples, but at least the fewest.
QUICK_SHARE = 4
FEWEST = 5


def examples(count: int) -> int:
    """Return the number of examples to make in place of `count`: ``@settings(max_examples=examples(100))``."""
    if os.environ.get("OPTDB_TESTS") != "quick":
        return count
    return min(count, max(FEWEST, count // QUICK_SHARE))
