"""Some examples in a process of their own: ``python -m fuzzing.worker TASK``, where TASK is a `Task` as JSON.

It ends with status 1 where an example differs, and prints the smallest one that was found.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import sys
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from fuzzing.comparing import compare
from fuzzing.pairs import Pairs
from fuzzing.strategies import Example, examples
from fuzzing.switches import Process

__all__ = ["Task", "run"]


@dataclass(frozen=True)
class Task:
    """Some examples, and the seed that they come from.

    Parameters
    ----------
    seed : int
        Where random numbers begin.
    examples : int
        How many.
    device : str
        On which device, as `optdb.mode` names it.
    process : Process
        The switches of the process.
    only : mapping from str to collection of str
        Switches, and the values to which they are confined.
    without : collection of str
        Operations that are left out.
    shrinks : bool
        Whether a failing example is made smaller.
    pairs : str
        A file for what was drawn together; none if empty.
    current : str
        A file for the example that is being computed, which tells of a process that died; none if empty.
    """

    seed: int
    examples: int
    device: str = "auto"
    process: Process = field(default_factory=Process)
    only: Mapping[str, Collection[str]] = field(default_factory=dict)
    without: Collection[str] = ()
    shrinks: bool = True
    pairs: str = ""
    current: str = ""

    def __str__(self) -> str:
        switches = ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(self.process).items())
        return f"seed {self.seed}, {self.examples} examples, {switches}"

    def to_json(self) -> str:
        """Return it as an argument of the command line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Return what `to_json` has written."""
        content = json.loads(text)
        return cls(**{**content, "process": Process(**content["process"])})


def run(task: Task) -> Pairs:
    """Compare random programs under random switches; return which were drawn together where something was compared.

    Raises
    ------
    Exception
        What the smallest example that fails raises.
    """
    pairs = Pairs()
    failed = False

    @seed(task.seed)
    @settings(
        max_examples=task.examples,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if task.shrinks else (Phase.generate,),
    )
    @given(examples(task.process, task.without, task.only))
    def examine(example: Example) -> None:
        nonlocal failed
        program, switches = example
        if task.current:
            Path(task.current).write_text(f"{switches.script()}\n{program.script()}\n")
        failed_before, failed = failed, True
        compared = compare(program, switches, task.device)
        failed = failed_before
        # What Hypothesis computes to make a failing example smaller does not count.
        if compared and not failed:
            pairs.add(switches)

    try:
        examine()
    finally:
        if task.pairs:
            pairs.write(Path(task.pairs))
    return pairs


def main() -> None:
    """Run what the command line says."""
    faulthandler.enable()
    try:
        run(Task.from_json(sys.argv[1]))
    except Exception:
        traceback.print_exc(file=sys.stdout)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
