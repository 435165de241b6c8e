"""Runs a script, then tells where the ops of each function that it compiled run, and why."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from optdb.cli.launch import launch


def can_draw() -> bool:
    """Whether the package that draws pictures is installed."""
    return importlib.util.find_spec("graphviz") is not None


def explain_script(target: str, args: Sequence[str], *, is_module: bool = False, pictures: Path | None = None) -> None:
    """Run a script as `launch` does, and print what became of its functions, even if it fails.

    Parameters
    ----------
    target, args, is_module
        As `launch` takes them.
    pictures : Path, optional
        A folder to draw each function's graph in: as SVG, or as Graphviz's own text where its program is missing.
    """
    from optdb import lifters  # imports the host, which the flags are checked by
    from optdb.host.compiled import watching

    seen: list[Any] = []
    try:
        with watching(seen.append):
            launch(target, args, is_module=is_module)
    finally:
        _report([lifters.explain(function) for function in seen], pictures)


def _report(explanations: list[Any], pictures: Path | None) -> None:
    console = Console(stderr=True)
    suffix = ".svg" if shutil.which("dot") else ".dot"
    if not explanations:
        console.print("no function was compiled")
    for number, explanation in enumerate(explanations):
        console.rule(f"function {number}: {explanation.name}")
        console.print(explanation.render())
        if pictures is not None:
            pictures.mkdir(parents=True, exist_ok=True)
            console.print(f"picture: {explanation.picture(pictures / f'{number}{suffix}')}", soft_wrap=True)
    if pictures is not None and explanations and suffix == ".dot":
        console.print(
            "The pictures are Graphviz's own text, because its program dot is missing. For SVG: "
            f"apt-get install graphviz, then dot -Tsvg -O {shlex.quote(str(pictures))}/*.dot",
            soft_wrap=True,
            highlight=False,
        )
