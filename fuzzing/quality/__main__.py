"""The command line: ``python -m fuzzing.quality``."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console

from fuzzing.runner import options, run_chunks, run_worker

#: Number of models per process.
CHUNK = 20
KINDS = ("nets", "densities", "recurrences")


@click.command()
@click.option("--examples", default=200, show_default=True, help="Number of graphs of each kind.")
@click.option("--seed", default=0, show_default=True, help="Seed of the first graph.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Kinds of graphs; all by default.")
@click.option("--hash-seed", "hash_seeds", multiple=True, default=(0,), show_default=True, help="PYTHONHASHSEED.")
@options(processes=os.cpu_count() or 1, timeout=900.0)
def main(
    examples: int, seed: int, kinds: tuple[str, ...], hash_seeds: tuple[int, ...], processes: int, timeout: float
) -> None:
    """Draw models, and compare the engine's graphs with stock Theano's.

    Stock Theano's final graph depends on the order of sets, and therefore on PYTHONHASHSEED. The engine's graph counts
    as worse if it is worse with at least one of the requested hash seeds. The exit status is 1 if a graph is worse, or
    if a model fails.
    """
    console = Console(soft_wrap=True)
    chunks = [
        (kind, first, min(first + CHUNK, seed + examples), hash_seed)
        for kind in kinds or KINDS
        for first in range(seed, seed + examples, CHUNK)
        for hash_seed in hash_seeds
    ]
    results: list[dict[str, Any]] = []
    for _, lines in run_chunks(chunks, lambda chunk: list(_lines(*chunk, timeout)), processes):
        results += lines
        for line in filter(_is_fault, lines):
            console.print(_described(line), highlight=False, markup=False)
    results.sort(key=lambda line: line["seed"])
    for kind in kinds or KINDS:
        console.print(f"{kind}: {_summary([line for line in results if line['kind'] == kind])}", highlight=False)
    raise SystemExit(1 if any(map(_is_fault, results)) else 0)


def _lines(kind: str, first: int, stop: int, hash_seed: int, timeout: float) -> Iterator[dict[str, Any]]:
    """Compare some models in a separate process, and yield their results."""
    environment = {"PYTHONHASHSEED": str(hash_seed)}
    end = run_worker("fuzzing.quality.comparing", (kind, first, stop), timeout, environment)
    for line in end.printed.splitlines():
        # The last line of a killed process may be incomplete.
        if line.startswith("{") and line.endswith("}"):
            yield {"hash_seed": hash_seed, **json.loads(line)}
    if end.trouble:
        what, _, printed = end.trouble.partition("\n")
        error = f"seeds from {first} to {stop}, {what} {printed[-2000:]}"
        yield {"hash_seed": hash_seed, "kind": kind, "seed": first, "error": error}


def _is_fault(line: dict[str, Any]) -> bool:
    return "error" in line or line["is_worse"]


def _described(line: dict[str, Any]) -> str:
    where = f"WORSE {line['kind']} {line['seed']} (PYTHONHASHSEED={line['hash_seed']})"
    if "error" in line:
        return f"{where}: {line['error']}"
    counts = f"stock {line['stock']}, engine {line['engine']} [nodes, in place]"
    return f"{where}: {counts}\n  {line['words']}\n  stock only: {line['fewer']}\n  engine only: {line['more']}"


def _summary(lines: list[dict[str, Any]]) -> str:
    compared = [line for line in lines if "error" not in line]
    stock, engine = (sum(line[way][0] for line in compared) for way in ("stock", "engine"))
    fewer = sum(line["engine"][0] < line["stock"][0] for line in compared)
    worse = sum(line["is_worse"] for line in compared)
    grown = Counter(name for line in compared for name in line["more_of_class"])
    seeds = {name: [line["seed"] for line in compared if name in line["more_of_class"]][:5] for name in grown}
    parts = [f"{name} in {count} (seeds {', '.join(map(str, seeds[name]))})" for name, count in grown.most_common()]
    return (
        f"{len(compared)} compared, {fewer} with fewer nodes than stock, {worse} worse, {len(lines) - len(compared)} "
        f"failed; {stock} nodes by stock, {engine} by the engine; more than stock of: {'; '.join(parts) or 'none'}"
    )


if __name__ == "__main__":
    main()
