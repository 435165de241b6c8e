"""Scripts that measure how stock Theano and optdb optimize real models, and how fast the models run on a device.

``python -m profiles`` lists the command lines. The scripts only use public names of optdb.
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
