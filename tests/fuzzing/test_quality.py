"""A seed reproduces a random model; the comparison detects if the engine's graph is worse than stock Theano's."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from fuzzing.quality import __main__ as command
from fuzzing.quality import comparing
from fuzzing.quality.comparing import KINDS, Comparison, Counts, compare


@pytest.mark.parametrize("kind", KINDS)
def test_models_follow_from_a_seed(kind):
    words = [KINDS[kind](seed).words for seed in range(4)]
    assert words == [KINDS[kind](seed).words for seed in range(4)]
    assert len({*words}) == 4


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("densities", 0),
        ("densities", 1),
        pytest.param("nets", 3, marks=pytest.mark.slow),
        pytest.param("recurrences", 1, marks=pytest.mark.slow),
    ],
)
def test_the_engine_s_graph_is_no_larger(kind, seed):
    found = compare(kind, seed)
    assert not found.is_worse, found
    assert found.stock.nodes > 5
    # `more` and `fewer` list the nodes that only one of the graphs has.
    more, fewer = (sum(int(op.split()[0]) for op in ops) for ops in (found.more, found.fewer))
    assert found.engine.nodes - found.stock.nodes == more - fewer


@pytest.mark.parametrize(
    ("stock", "engine", "is_worse"),
    [((5, 1), (5, 1), False), ((5, 1), (4, 0), False), ((5, 1), (6, 3), True), ((5, 2), (5, 1), True)],
)
def test_what_is_worse(stock, engine, is_worse):
    assert Comparison("", Counts(*stock), Counts(*engine), [], []).is_worse == is_worse


def test_a_worse_graph_and_an_error_are_told(monkeypatch, capsys):
    def compared(kind, seed):
        if seed == 1:
            raise ValueError("no such graph")
        return Comparison("dense relu", Counts(5, 1), Counts(5 + seed, 1), ["1 Dot"], ["2 Join", "1 Dot"], {"Join": 2})

    monkeypatch.setattr(comparing, "compare", compared)
    comparing.write_comparisons("nets", 0, 3)
    lines = [{"hash_seed": 0, **json.loads(line)} for line in capsys.readouterr().out.splitlines()]
    assert [command._is_fault(line) for line in lines] == [False, True, True]
    assert "no such graph" in command._described(lines[1])
    description = command._described(lines[2])
    assert all(word in description for word in ("WORSE nets 2", "PYTHONHASHSEED=0", "[7, 1]", "2 Join", "dense relu"))
    assert command._summary(lines) == (
        "2 compared, 0 with fewer nodes than stock, 1 worse, 1 failed; 10 nodes by stock, 12 by the engine; "
        "more than stock of: Join in 2 (seeds 0, 2)"
    )


@pytest.mark.slow
def test_a_process_that_ends_is_a_fault():
    (line,) = command._lines("no such kind", 0, 1, 0, 60.0)
    assert command._is_fault(line) and "no such kind" in line["error"]


def test_the_command_line():
    done = CliRunner().invoke(command.main, ["--help"])
    assert done.exit_code == 0
    assert "PYTHONHASHSEED" in done.output
