"""Decides whether tests with Hypothesis and fuzzers run all of their examples or only a fraction."""

from __future__ import annotations

import os

#: With OPTDB_TESTS=quick, which `make test` and `.ci/run` set, tests run every fourth of their examples, but at least
#: two, and thorough tests are omitted. Seeds are fixed, so most examples are the same in each run.
SHARE = 4
FEWEST = 2


def is_quick() -> bool:
    """Tell whether tests run only a fraction of their examples."""
    return os.environ.get("OPTDB_TESTS") == "quick"


def examples(count: int, share: int = SHARE) -> int:
    """Return how many of `count` examples to run, as in ``@settings(max_examples=examples(100))``.

    Quick runs run one example in `share`. Tests with slow examples pass a larger `share`: ``examples(60, share=10)``.
    """
    return min(count, max(FEWEST, count // (share if is_quick() else 1)))
