"""The suites, which are named sets of the hosts' test files, and the location of the files.

Some tests are excluded: tests of missing back ends and tools (gpuarray, MPI, CTC, d3viz), and tests of the style of
Theano's source text (flake8). Some tests of pooling, neighbours and MRG random numbers are also excluded, because they
spend minutes in the Python code of an op whose C code is fast. Theano's yield tests are not excluded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class Suite:
    """A set of a host's test files: globs relative to the root of the test files, without the names in `left_out`."""

    name: str
    summary: str
    patterns: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    def files(self, root: Path) -> list[str]:
        """Return the sorted paths of the suite's files, relative to `root`."""
        found = {path for pattern in self.patterns for path in root.glob(pattern)}
        return sorted(str(path.relative_to(root)) for path in found if path.name not in self.left_out)


def _tensor(*names: str) -> tuple[str, ...]:
    return tuple(f"theano/tensor/tests/test_{name}.py" for name in names)


SUITES = (
    Suite("opt", "the rewrites of tensor expressions: the most demanding suite", _tensor("opt")),
    Suite("uncanonicalize", "the rewrites that undo canonical forms", _tensor("opt_uncanonicalize")),
    Suite("elemwise", "Elemwise, DimShuffle, CAReduce", _tensor("elemwise", "keepdims", "merge", "xlogx")),
    Suite("subtensor", "indexing, and setting and incrementing by index", _tensor("subtensor", "inc_subtensor")),
    Suite("blas", "gemm, gemv, ger and the rewrites that make them", _tensor("blas", "blas_c", "blas_scipy")),
    Suite("basic", "every tensor op", _tensor("basic")),
    Suite(
        "tensor",
        "other tensor ops and types",
        _tensor("casting", "complex", "extra_ops", "fft", "fourier", "gc", "io", "misc", "sharedvar", "sort")
        + _tensor("type_other", "utils", "var"),
    ),
    Suite("linalg", "linear algebra", (*_tensor("nlinalg", "slinalg"), "theano/sandbox/linalg/tests/test_*.py")),
    Suite(
        "random",
        "random streams",
        (*_tensor("raw_random", "shared_randomstreams"), "theano/sandbox/tests/test_*.py"),
        left_out=("test_rng_mrg.py",),
    ),
    Suite(
        "nnet",
        "neural networks: softmax, sigmoid, batch normalization, ...",
        tuple(f"theano/tensor/nnet/tests/test_{name}.py" for name in ("nnet", "opt", "sigm", "bn", "blocksparse")),
    ),
    Suite(
        "conv",
        "convolution",
        (
            "theano/tensor/nnet/tests/test_*conv*.py",
            "theano/tensor/nnet/tests/test_corr*.py",
            "theano/tensor/signal/tests/test_*.py",
        ),
        left_out=("test_pool.py",),
    ),
    Suite("scan", "loops", ("theano/scan_module/tests/test_*.py",)),
    Suite("gof", "graphs, rewriters, databases, linkers", ("theano/gof/tests/test_*.py",)),
    Suite("compile", "functions, modes, shared variables, OpFromGraph", ("theano/compile/tests/test_*.py",)),
    Suite("scalar", "scalar ops and Composite", ("theano/scalar/tests/test_*.py",)),
    Suite("sparse", "sparse matrices", ("theano/sparse/tests/test_*.py",)),
    Suite("typed_list", "lists", ("theano/typed_list/tests/test_*.py",)),
    Suite(
        "theano",
        "gradients, ifelse, printing and the rest",
        ("theano/tests/test_*.py", "theano/misc/tests/test_*.py"),
        left_out=("test_flake8.py",),
    ),
)


#: PyTensor's suites, relative to the folder of its repository; an installed PyTensor does not contain them.
PYTENSOR_SUITES = (
    Suite("rewriting", "rewriters of graphs, nodes, tensors and matrices", ("tests/**/rewriting/**/test_*.py",)),
    Suite(
        "graph",
        "the graph, its features, and the destroy handler",
        tuple(f"tests/graph/test_{name}.py" for name in ("basic", "destroyhandler", "features", "fg", "replace")),
    ),
    Suite(
        "tensor",
        "tensor math, subtensor, elemwise and the rest",
        tuple(
            f"tests/tensor/test_{name}.py"
            for name in ("math", "subtensor", "elemwise", "blas", "merge", "basic", "sharedvar")
        ),
    ),
    Suite("linalg", "linear algebra", ("tests/tensor/linalg/**/test_*.py",)),
    Suite("scan", "loops", ("tests/scan/test_*.py",)),
    Suite("assumptions", "inferred properties of matrices", ("tests/assumptions/test_*.py",)),
    Suite("compile", "functions, modes, OpFromGraph", ("tests/compile/test_*.py",)),
)


def suites_root() -> Path:
    """Return the folder that contains the installed theano package, without importing Theano."""
    spec = find_spec("theano")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("Theano is not installed: its suites come with it")
    return Path(spec.origin).parent.parent


def choose(names: Iterable[str], suites: Iterable[Suite] = SUITES, root: Path | None = None) -> dict[str, str]:
    """Return a dictionary from each file to run to the name of its suite, in the order of the suites.

    `names` are names of suites or parts of files' paths. Without names, all files are run. Globs are relative to
    `root`, by default the folder that contains the theano package.
    """
    root = root or suites_root()
    names = list(names)
    known = {suite.name for suite in suites}
    parts = [name for name in names if name not in known]
    return {
        path: suite.name
        for suite in suites
        for path in suite.files(root)
        if not names or suite.name in names or any(part in path for part in parts)
    }
