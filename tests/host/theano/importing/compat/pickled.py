"""Pickles Theano objects and their results with one Python and NumPy, to read them with another.

`test_pickles` reads the files in the folder ``pickles``, which are named after the versions that wrote them, and
compares the results of the objects. To write the file of the current versions::

    THEANO_FLAGS=cxx=,traceback.limit=0 python -c "
    import optdb
    from tests.host.theano.importing.compat import pickled
    pickled.main()"
"""

from __future__ import annotations

import lzma
import pickle
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import theano
import theano.sparse
import theano.tensor as tt
from theano.compile.mode import Mode
from theano.ifelse import ifelse
from theano.sandbox.rng_mrg import MRG_RandomStreams

FOLDER = Path(__file__).parent / "pickles"

#: Every version reads protocol 4; the default of Python 3.14 is 5.
PROTOCOL = 4

#: The mode compiles no C code, because pickles only contain graphs, so that code would be compiled again after reading.
MODE = Mode("py", "fast_run")

CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {}


def case(use: Callable[[Any], Any]) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a function that makes an object; ``use`` computes something with the object."""

    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        CASES[make.__name__] = make, use
        return make

    return register


def _evaluate(variables: Any) -> list[Any]:
    x, *outputs = variables
    values = np.linspace(0.25, 0.75, 6).reshape((2, 3)).astype(x.dtype)
    return theano.function([x], outputs, mode=MODE)(values)


@case(lambda function: [function([1, 2, 3]), function([4, 5, 6]), function.get_shared()[0].get_value()])
def function_with_updates() -> Any:
    """Return a function that updates a shared variable; one of its arguments has a default."""
    x, rate = tt.fvector("x"), tt.fscalar("rate")
    weights = theano.shared(np.arange(3, dtype="float32"), "weights")
    loss = ((weights * x - 1) ** 2).mean()
    updates = [(weights, weights - rate * tt.grad(loss, weights))]
    return theano.function([x, theano.In(rate, value=np.float32(0.1))], loss, updates=updates, mode=MODE, name="step")


@case(lambda function: function(np.arange(4.0)))
def function_with_scan() -> Any:
    """Return a function with a loop and its gradient."""
    x = tt.dvector("x")
    sums, _ = theano.scan(
        lambda item, total: tt.tanh(total) + item,
        sequences=[x],
        outputs_info=[tt.constant(0.0, dtype="float64")],
        mode=MODE,
    )
    return theano.function([x], [sums, tt.grad(sums[-1], x)], mode=MODE, name="sums")


@case(lambda function: [function(), function()])
def function_with_random_numbers() -> Any:
    """Return a function whose random numbers continue after unpickling."""
    numbers = tt.shared_randomstreams.RandomStreams(7).uniform((3,))
    function = theano.function([], numbers, mode=MODE, name="numbers")
    function()
    return function


@case(lambda streams: theano.function([], streams.normal((3,)), mode=MODE)())
def random_streams() -> Any:
    """Return streams of NumPy's random states; some of their numbers have been drawn."""
    streams = tt.shared_randomstreams.RandomStreams(11)
    streams.uniform((2,))
    return streams


@case(lambda streams: theano.function([], streams.uniform((3,), dtype="float32"), mode=MODE)())
def mrg_random_streams() -> Any:
    """Return streams of Theano's own generator."""
    streams = MRG_RandomStreams(13)
    streams.uniform((2,), dtype="float32")
    return streams


@case(lambda variables: [variable.get_value() for variable in variables])
def shared_variables() -> Any:
    """Return shared variables of several types."""
    values = [np.arange(3, dtype="int8"), np.ones((2, 1), "float16"), np.float64(2.5), np.zeros((0, 2), "complex64")]
    return [theano.shared(value, name=f"s{i}", borrow=False) for i, value in enumerate(values)]


@case(lambda variable: variable.get_value().toarray())
def sparse_shared_variable() -> Any:
    """Return a shared variable with a sparse matrix."""
    import scipy.sparse

    return theano.shared(scipy.sparse.csc_matrix(np.eye(3, dtype="float32")), "sparse")


@case(lambda constants: [constant.data for constant in constants] + [constant.dtype for constant in constants])
def constants() -> Any:
    """Return constants, in the types that Theano chooses."""
    return [tt.constant(value) for value in (1, 300, 0.5, True, np.float32(3), [1, 2], np.ones((2, 2), "uint16"))]


@case(_evaluate)
def expressions() -> Any:
    """Return an input and expressions with ops of many kinds."""
    x = tt.dmatrix("x")
    rows = tt.arange(x.shape[0])
    return [
        x,
        tt.nnet.softmax(x).argmax(axis=1),
        tt.grad(tt.log(tt.nnet.sigmoid(x) * 2 + 1).sum(), x),
        tt.dot(x, x.T)[::-1, 1:].dimshuffle(1, "x", 0),
        tt.set_subtensor(x[:, 1], 2).cumsum(axis=0).max(axis=1),
        x[rows, rows],
        tt.concatenate([x, tt.zeros_like(x)], axis=1).astype("float32").norm(2),
        tt.switch(x > 0.5, x.clip(0.3, 0.6), tt.ceil(x) // 2),
        ifelse(tt.gt(x.sum(), 1), x.mean(), x.prod()),
        tt.nlinalg.det(tt.dot(x, x.T) + tt.eye(2)),
        tt.sort(x, axis=1).repeat(2, axis=0),
        theano.OpFromGraph([x], [x**3 + 0.5], inline=True)(x),
    ]


def make_bytes(name: str) -> bytes:
    """Pickle a case's object."""
    return pickle.dumps(CASES[name][0](), PROTOCOL)


def compute(name: str, content: bytes) -> Any:
    """Read a pickled object, and return its results as lists and Python numbers."""
    return plain(CASES[name][1](pickle.loads(content)))


def plain(value: Any) -> Any:
    """Return results as lists and Python numbers, and arrays with their dtypes and shapes."""
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return [str(value.dtype), list(value.shape), np.asarray(value).ravel().tolist()]
    return value


def read(path: Path) -> dict[str, tuple[bytes, Any]]:
    """Return the pickled objects in a file, each with the results computed when it was written."""
    return pickle.loads(lzma.decompress(path.read_bytes()))


def main() -> None:
    """Write the file of the current versions."""
    content = {}
    for name in CASES:
        pickled = make_bytes(name)
        content[name] = (pickled, compute(name, pickled))
    FOLDER.mkdir(exist_ok=True)
    versions = (f"{name}{'.'.join(version.split('.')[:2])}" for name, version in _versions().items())
    (FOLDER / f"{'-'.join(versions)}.xz").write_bytes(lzma.compress(pickle.dumps(content, PROTOCOL), preset=9))


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), "numpy": np.__version__}
