"""Runs a script, then reports where the ops of each compiled function run, and why."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click import ClickException
from rich.console import Console

from optdb.cli.launch import launch
from optdb.files import check_folder


def can_draw() -> bool:
    """Return whether the package that draws pictures is installed."""
    return importlib.util.find_spec("graphviz") is not None


def explain_script(
    target: str,
    args: Sequence[str],
    *,
    is_module: bool = False,
    pictures: Path | None = None,
    html: Path | None = None,
) -> None:
    """Run a script as `launch` does, and print where its functions' ops run, even if the script fails.

    `pictures` is a folder for drawings of the graphs: SVG files, or Graphviz's source files if Graphviz is missing.
    `html` is the file to which the HTML report is written. If `pictures` or `html` cannot be written, raise
    ClickException before running the script.
    """
    from optdb import lifters  # this import also imports the host, and the host checks the flags
    from optdb.host.theano.functions.compiled import watching

    seen: list[Any] = []
    # Use absolute paths, because the script may change the working directory, but print the paths as given.
    folder = None if pictures is None else pictures.absolute()
    # Fail early if the report cannot be written, because the script may run for a long time.
    for written in filter(None, (html and html.parent, pictures)):
        _check(written)
    with _page(html, target):  # the page's name is printed after the report, where users see it
        try:
            with watching(seen.append):
                launch(target, args, is_module=is_module)
        finally:
            _report([lifters.explain(function) for function in seen], pictures, folder)


def _check(folder: Path) -> None:
    try:
        check_folder(folder)
    except OSError as error:
        cure = "name a folder with space that can be written"
        raise ClickException(f"{folder}: {error.strerror}\nThe cure: {cure}") from error


@contextmanager
def _page(path: Path | None, title: str) -> Iterator[None]:
    """Observe the functions compiled in the block; when the block ends, even with an error, write a page about them."""
    if path is None:
        yield
        return
    from optdb.cli.html_report import write_html
    from optdb.host.theano.functions.observing import ObservedFunction, observe
    from optdb.topo import collect

    functions: list[ObservedFunction] = []
    target = path.absolute()
    try:
        with observe(functions.append, around=collect):
            yield
    finally:
        write_html(functions, target, f"{title}: what Theano compiled")
        print(f"open {path} in a browser", file=sys.stderr)


def _report(explanations: list[Any], pictures: Path | None = None, folder: Path | None = None) -> None:
    """Print explanations, and draw the graphs in `folder`; messages show `pictures` as the folder's path."""
    console = Console(stderr=True)
    suffix = ".svg" if shutil.which("dot") else ".dot"
    if not explanations:
        console.print("no function was compiled")
    elif all(set(explanation.places) <= {"host"} for explanation in explanations):
        console.print(
            "No op runs on a device. THEANO_FLAGS=optdb.device=opencl selects the best device.", highlight=False
        )
    for number, explanation in enumerate(explanations):
        # Do not break lines (soft_wrap), because names contain paths that users copy.
        console.print(f"function {number}: {explanation.name}", style="bold", soft_wrap=True, highlight=False)
        console.print(explanation.render())
        if pictures is not None and folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            picture = explanation.picture(folder / f"{number}{suffix}")
            console.print(f"picture: {pictures / picture.name}", soft_wrap=True)
    if pictures is not None and explanations and suffix == ".dot":
        console.print(
            "The pictures are Graphviz source files, because the program dot is not installed. For SVG: apt-get "
            f"install graphviz, then dot -Tsvg -O {shlex.quote(str(pictures))}/*.dot",
            soft_wrap=True,
            highlight=False,
        )
