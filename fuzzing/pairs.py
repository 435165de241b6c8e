"""Counts how often pairs of switch values were drawn together: ``python -m fuzzing.pairs FILE ...``."""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import click

from fuzzing.switches import EXCLUDED, Compilation, Process, Surroundings, Switches, exclusion, values_of

__all__ = ["Pairs"]

#: Prefix for the names of the other function's switches.
OTHER = "other "

Value = tuple[str, str]

_COMMON = {**values_of(Process), **values_of(Surroundings)}
_OWN = values_of(Compilation)


class Pairs:
    """Counts the examples that have each pair of switch values, in the same function or one value in each function."""

    def __init__(self, counts: Mapping[str, int] | None = None, examples: int = 0) -> None:
        self.counts = Counter(counts or {})
        self.examples = examples

    def add(self, switches: Switches) -> None:
        """Count an example."""
        self.examples += 1
        common = list(switches.common().items())
        own = [list(asdict(part).items()) for part in (switches.first, switches.second)]
        found = set()
        for values in own:
            found |= {_key(a, b) for a, b in itertools.combinations([*common, *values], 2)}
        found |= {_key(a, (OTHER + name, value)) for a, (name, value) in itertools.product(*own)}
        alone = {f"{name}={value}" for name, value in itertools.chain(common, *own)}
        self.counts.update(found | alone)

    def update(self, other: Pairs) -> None:
        """Add the counts of another `Pairs`."""
        self.counts.update(other.counts)
        self.examples += other.examples

    def count(self, one: Value, other: Value) -> int:
        """Return how many examples have both of two switch values."""
        return self.counts[_key(one, other)]

    def never(self) -> list[tuple[Value, Value]]:
        """Return the pairs of compatible switch values that no example has."""
        return [pair for pair in self._possible() if not self.count(*pair)]

    def pythons(self) -> tuple[str, ...]:
        """Return the Python versions that examples ran on."""
        return tuple(sorted(key.removeprefix("python=") for key in self.counts if _is_python(key)))

    def _possible(self) -> Iterator[tuple[Value, Value]]:
        switches = {"python": self.pythons(), **_COMMON, **_OWN}
        for one, other in itertools.combinations(switches, 2):
            yield from _values(switches, one, other)
        for one, other in itertools.combinations_with_replacement(_OWN, 2):
            yield from _across(one, other)

    def tables(self) -> str:
        """Return Markdown tables of all switch values and of the rarest pair of values of every two switches."""
        switches = {"python": self.pythons(), **_COMMON, **_OWN}
        number = {name: index + 1 for index, name in enumerate(switches)}
        head = "| | switch | values and examples |\n|---|---|---|"
        lines = [f"{self.examples:,} examples.", "", *head.split("\n")]
        for name, values in switches.items():
            shown = ", ".join(f"`{value}` {self.counts[f'{name}={value}']:,}" for value in values)
            lines.append(f"| {number[name]} | `{name}` | {shown} |")
        of_one = functools.partial(_values, switches)
        title = (
            "The table shows, for every two switches of one function, how many examples have the rarest combination of "
            "the two switches' values:"
        )
        lines += ["", title, "", *self._matrix(list(switches)[1:], list(switches)[:-1], number, of_one)]
        title = "The same numbers for a switch of one function (row) and a switch of the other function (column):"
        lines += ["", title, "", *self._matrix(list(_OWN), list(_OWN), number, lambda a, b: _across(b, a))]
        lines += ["", "These values exclude each other:", ""]
        lines += ["| switch | values | with | values | reason |", "|---|---|---|---|---|"]
        for rule in EXCLUDED:
            (a, of_a), (b, of_b) = rule.first, rule.second
            lines.append(f"| `{a}` | {', '.join(of_a)} | `{b}` | {', '.join(of_b)} | {rule.reason} |")
        return "\n".join(lines).replace("c|py", r"c\|py") + "\n"

    def _matrix(
        self,
        rows: list[str],
        columns: list[str],
        number: Mapping[str, int],
        pairs_of: Callable[[str, str], list[tuple[Value, Value]]],
    ) -> Iterator[str]:
        """Yield the lines of a table with the count of the rarest pair of values of every two switches."""
        yield "| | " + " | ".join(str(number[name]) for name in columns) + " |"
        yield "|---" * (len(columns) + 1) + "|"
        for row in rows:
            pairs = [pairs_of(column, row) if number[column] <= number[row] else [] for column in columns]
            cells = [f"{min(itertools.starmap(self.count, some)):,}" if some else "" for some in pairs]
            yield f"| {number[row]} `{row}` | " + " | ".join(cells) + " |"

    def write(self, path: Path) -> None:
        """Add the counts of this object to the counts in a file."""
        total = Pairs()
        if path.exists():
            total.update(Pairs.read(path))
        total.update(self)
        path.write_text(json.dumps({"examples": total.examples, "pairs": dict(sorted(total.counts.items()))}, indent=0))

    @classmethod
    def read(cls, path: Path) -> Pairs:
        """Read the counts of a file."""
        content = json.loads(path.read_text())
        return cls(content["pairs"], content["examples"])


def _key(one: Value, other: Value) -> str:
    """Return the name of a pair, which does not depend on the order of its two values."""
    bare = [(name.removeprefix(OTHER), value) for name, value in (one, other)]
    across = any(name.startswith(OTHER) for name, _ in (one, other))
    (a, of_a), (b, of_b) = sorted(bare)
    return f"{a}={of_a} & {OTHER if across else ''}{b}={of_b}"


def _is_python(key: str) -> bool:
    return key.startswith("python=") and " & " not in key


def _of(switches: Mapping[str, tuple[str, ...]], name: str) -> list[Value]:
    return [(name, value) for value in switches[name]]


def _values(switches: Mapping[str, tuple[str, ...]], one: str, other: str) -> list[tuple[Value, Value]]:
    """Return the pairs of values of two different switches that do not exclude each other."""
    pairs = itertools.product(_of(switches, one), _of(switches, other))
    return [pair for pair in pairs if one != other and exclusion(pair[0], [pair[1]]) is None]


def _across(one: str, other: str) -> list[tuple[Value, Value]]:
    """Return all pairs of a value of the switch `one` in one function and a value of `other` in the other function."""
    return [(a, (OTHER + b[0], b[1])) for a, b in itertools.product(_of(_OWN, one), _of(_OWN, other))]


def shown(pairs: Iterable[tuple[Value, Value]]) -> list[str]:
    """Return a text with a line for each pair of values."""
    return [f"{a}={of_a} never with {b}={of_b}" for (a, of_a), (b, of_b) in pairs]


#: The text of the page that contains the tables.
_BEGIN, _END = "<!-- pairs -->\n", "<!-- end of pairs -->\n"


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--docs", type=click.Path(exists=True, path_type=Path), help="Replace the tables in this document.")
def main(files: tuple[Path, ...], docs: Path | None) -> None:
    """Show how often switches were drawn together, from files that `python -m fuzzing --pairs` has written.

    The exit status is 1 if two values that do not exclude each other were never drawn together.
    """
    total = Pairs()
    for path in files:
        total.update(Pairs.read(path))
    if docs is None:
        click.echo(total.tables())
    else:
        before, _, rest = docs.read_text().partition(_BEGIN)
        _, _, after = rest.partition(_END)
        docs.write_text(f"{before}{_BEGIN}\n{total.tables()}\n{_END}{after}")
    never = shown(total.never())
    click.echo("\n".join(never) or "every pair of values that do not exclude each other was drawn")
    raise SystemExit(1 if never else 0)


if __name__ == "__main__":
    main()
