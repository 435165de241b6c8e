"""Scripts that measure how stock Theano and optdb optimize real models, and how fast the models run on a device.

Read from the bottom up::

    models     symbolic training functions, each with the data to run it on
    ways       Theano's optimizer, or optdb's
    measure    optimizes a model's graph as theano.function would, and times it
    interpret  runs an optimized graph with NumPy, without a compiler
    check      compares the values of two optimized graphs
    report     evaluates the measurements;  screen, files: show and write them
    cli        what the command lines share
    compare, profile, lines
               the command lines: ``python -m profiles.compare --help``

These modules measure run time::

    isolated   calls a function in a separate process
    operations single operations, run by the device, Theano's C code, C programs and others
    stopwatch  times contenders in turn;  starts: times processes up to their first results
    training   trains a model on the device and on the host, and compares the steps
    runtime, train
               the command lines

This package uses PyTensor instead of Theano::

    pytensor   PyMC models on a device, compared with PyTensor's default

Data flows one way: a `Model` is passed to ``measure``, its `Measurement` objects to ``check`` and ``report``, and their
results to the screen. Only public names of optdb are used here.
"""

import importlib.util
import sys
from pathlib import Path

import optdb  # noqa: F401  cures Theano's import, so it has to come before the first `import theano`

# Theano clones and differentiates graphs recursively, one level per node along the deepest path.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 10_000))


def _refuse_helpers() -> None:
    """Exit ``python -m profiles.NAME`` with a message if the module is not a command."""
    if sys.argv[:1] != ["-m"] or "-m" not in sys.orig_argv:
        return
    module = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    spec = importlib.util.find_spec(module) if module.startswith("profiles.") else None
    if spec is None or spec.origin is None or spec.submodule_search_locations is not None:
        return
    text = Path(spec.origin).read_text(encoding="utf-8")
    if '__name__ == "__main__"' not in text:
        summary = text.removeprefix('"""').partition("\n")[0].removesuffix('"""')
        sys.exit(
            f"{module} is used by other modules: {summary}\n`python -m profiles` lists what can be started by hand."
        )


_refuse_helpers()
