"""Random functions of host and device parts compute what Theano computes without any optimization."""

from __future__ import annotations

import pytest

from fuzzing.strategies import LOOPS
from fuzzing.ways import WAYS
from fuzzing.worker import run

#: How many examples there are of each way; ``python -m fuzzing`` has as many as one likes.
EXAMPLES = {"mode": 30, "copy": 10, "device": 15, "simulator": 30, "again": 15, "loop": 20, "file": 10}


@pytest.mark.parametrize("way", WAYS)
def test_functions_are_what_they_are_without_optimization(way):
    run(way, 0, EXAMPLES[way], without=LOOPS)
