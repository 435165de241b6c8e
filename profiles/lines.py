"""Shows where a function spends its time, line by line, while a model is optimized.

``python -m profiles.lines theano.tensor.opt.ShapeFeature.on_import gru30`` optimizes the model once, and profiles that
function with line_profiler. The function may belong to Theano or to optdb.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from types import FunctionType
from typing import Any

import click

from profiles import cli, measure


class UnknownFunction(LookupError):
    """Raised if there is no Python function with a given dotted name."""


def find(dotted: str) -> FunctionType:
    """Return the function with a dotted name, without decorators; raise `UnknownFunction` if a part is not found."""
    found, rest = _longest_module(dotted)
    for part in rest:
        # Do not use getattr, which would call a property and bind a method.
        try:
            found = inspect.getattr_static(found, part)
        except AttributeError:
            where = getattr(found, "__qualname__", None) or getattr(found, "__name__", repr(found))
            raise UnknownFunction(f"{dotted}: {where} has no {part!r}") from None
    found = _inside(found)
    if not isinstance(found, FunctionType):
        raise UnknownFunction(f"{dotted} is a {type(found).__name__}, not a Python function")
    return found


def _longest_module(dotted: str) -> tuple[object, list[str]]:
    """Import the longest prefix of a name that is a module; return the module and the other parts of the name."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        try:
            return importlib.import_module(name), parts[length:]
        except ModuleNotFoundError as error:
            # If the module exists, but imports another module that is missing, raise this error unchanged.
            if error.name is None or not name.startswith(error.name):
                raise
    raise UnknownFunction(f"{dotted}: there is no module {parts[0]!r}")


def _inside(found: Any) -> Any:
    """Return the function that a decorator, a property or a rewriter wraps."""
    if isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    if isinstance(found, property):
        found = found.fget
    if not callable(found) and callable(getattr(found, "transform", None)):
        # A rewriter that local_optimizer returns has the decorated function in `transform`.
        found = found.transform
    return inspect.unwrap(found) if callable(found) else found


@click.command()
@click.argument("function")
@click.argument("model", type=cli.MODEL)
@cli.way_option
def main(function: str, model: cli.Builder, way: str) -> None:
    """Profile FUNCTION, a dotted name, line by line while MODEL is optimized once."""
    try:
        from line_profiler import LineProfiler
    except ImportError:
        sys.exit("line_profiler is not installed: pip install 'optdb[profiles]'")
    try:
        profiled = find(function)
    except UnknownFunction as error:
        raise click.BadParameter(str(error), param_hint="FUNCTION") from None

    specification = measure.specify(model())
    profiler = LineProfiler(profiled)  # type: ignore[call-arg]  # its type hints lack the functions
    profiler.enable_by_count()
    measurement = measure.optimize(specification, cli.way(way))
    profiler.disable_by_count()

    click.echo(f"{specification.model.name} ({way}): {measurement.seconds:.2f} s with the profiler on")
    profiler.print_stats(stripzeros=False)


if __name__ == "__main__":
    main()
