"""Large packages are imported when Theano uses them, and then behave as usual."""

from __future__ import annotations

import json

import pytest

from optdb.host.theano.importing.compat import versions
from tests.processes import output, run_code

pytestmark = pytest.mark.skipif(
    versions.installed("scipy") < versions.SCIPY_LAZY, reason="this SciPy does not import its packages by itself"
)

#: Packages that only some programs use.
DEFERRED = (
    *("distutils", "setuptools", "pkg_resources", "numpy.distutils", "numpy.f2py", "multiprocessing"),
    *("scipy", "scipy.linalg", "scipy.special", "scipy.stats", "scipy.signal", "scipy.sparse"),
    *("pyopencl", "pygpu", "nose", "dask", "distributed", "rich", "click", "matplotlib", "pydot", "pydot_ng"),
    *("pdb", "email", "importlib.metadata", "theano.sparse", "theano.gpuarray"),
    *("optdb.opencl", "optdb.codegen", "optdb.runtime", "optdb.distributed", "optdb.lifters", "optdb.cli"),
)

LOADED = f"""
    import sys
    before = set(sys.modules)  # a virtual environment may import some as Python starts
    {{}}
    print(sorted(set({DEFERRED!r}) & (set(sys.modules) - before)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["import optdb, theano", "import optdb, theano.tensor.nnet"])
def test_importing_theano_leaves_them_out(statement):
    assert output(LOADED.format(statement), flags="cxx=", env={"PYTHONWARNINGS": "ignore"}) == "[]"


@pytest.mark.slow
@pytest.mark.skipif(
    versions.installed("numpy") < (1, 25), reason="this NumPy has a runner of tests, which Theano needs"
)
def test_no_runner_of_tests_is_imported_where_numpy_has_none():
    code = "import optdb, theano, sys; print({'unittest', 'numpy.testing'} & set(sys.modules) or 'none')"
    assert output(code, flags="cxx=", env={"PYTHONWARNINGS": "ignore"}) == "none"


@pytest.mark.slow
def test_theano_finds_what_it_looks_for():
    code = """
        import optdb, theano
        import theano.scalar.basic_scipy, theano.tensor.nnet.conv as conv
        print(theano.scalar.basic_scipy.imported_scipy_special, conv.imported_scipy_signal)
        print("__import__" in vars(conv), conv.__builtins__["__import__"] is __import__)
        from theano.tensor import blas
        print(blas.have_fblas, blas.fblas.__name__)
    """
    assert output(code).splitlines() == [
        "True True",
        "False True",
        "True optdb.host.theano.importing.compat.modules.scipy.linalg.blas",
    ]


@pytest.mark.slow
def test_the_packages_themselves_are_what_users_import():
    code = """
        import optdb, theano, theano.tensor as tt
        from optdb.host.theano.importing.compat.modules import scipy as seen
        import numpy, pdb, pickle, scipy, scipy.linalg.blas, scipy.sparse, scipy.special, unittest
        print(seen.special is scipy.special, seen.linalg.cholesky is scipy.linalg.cholesky, hasattr(seen, "none"))
        print(seen.linalg.blas.dgemm is scipy.linalg.blas.dgemm, {"special", "linalg"} <= set(dir(seen)))
        print(theano.gof.opt.pdb.set_trace is pdb.set_trace)
        import theano.sparse
        print(theano.sparse.enable_sparse, theano.sparse.as_sparse_variable(scipy.sparse.eye(3, format="csr")).type)
        import theano.tensor.slinalg, theano.misc.may_share_memory as sharing
        print(theano.tensor.slinalg.scipy.linalg is scipy.linalg)
    """
    assert output(code, flags="cxx=,floatX=float64", env={"PYTHONWARNINGS": "ignore"}).splitlines() == [
        "True True False",
        "True True",
        "True",
        "True Sparse[float64, csr]",
        "True",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["theano", "scipy.special, scipy.linalg.blas, scipy.stats", "setuptools, distutils"])
def test_it_does_not_matter_what_is_imported_first(first):
    code = f"""
        import contextlib
        with contextlib.suppress(ModuleNotFoundError):  # not every Python has distutils and setuptools
            import {first}
        import optdb, theano, theano.tensor as tt
        x = tt.dvector("x")
        f = theano.function([x], [tt.erf(x), tt.gammaln(x), tt.dot(tt.outer(x, x), x)])
        print([value.round(6).tolist() for value in f([1.0, 2.0])])
    """
    done = run_code(code, flags="cxx=,floatX=float64,blas.ldflags=", env={"PYTHONWARNINGS": "ignore"})
    if first == "theano" and versions.needs_translation():
        assert done.returncode  # without optdb, Theano does not run with this Python and NumPy
        return
    assert done.stdout.strip() == "[[0.842701, 0.995322], [0.0, 0.0], [5.0, 10.0]]", done.stderr


@pytest.mark.slow
def test_threads_may_use_them_at_once():
    code = """
        import threading, optdb, theano
        from theano.tensor import blas
        import numpy as np
        start, results = threading.Barrier(8), []
        def compute():
            start.wait()
            gemv = blas.fblas.dgemv(2.0, np.eye(2), np.ones(2))
            ger = blas.fblas.dger(1.0, np.ones(1), np.ones(1))
            results.append([*gemv, *ger[0], theano.scalar.scipy.special.erf(0.0)])
        threads = [threading.Thread(target=compute) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(len(results), {tuple(map(float, values)) for values in results})
    """
    assert output(code, flags="cxx=", env={"PYTHONWARNINGS": "ignore"}) == "8 {(2.0, 2.0, 1.0, 0.0)}"


@pytest.mark.slow
def test_what_theano_uses_of_them_computes_as_they_do():
    code = """
        import json, warnings
        import optdb, numpy as np, theano, theano.tensor as tt
        mode = theano.Mode("py", None)
        x = tt.dvector("x")
        chi2sf = theano.function([x], tt.chi2sf(x, 3.0), mode=mode)([0.5, 2.0]).tolist()
        image, kernel = tt.dtensor4("image"), tt.dtensor4("kernel")
        op = theano.tensor.nnet.conv.ConvOp(output_mode="full")
        values = np.arange(12.0).reshape(1, 1, 3, 4), np.arange(4.0).reshape(1, 1, 2, 2)
        full = theano.function([image, kernel], op(image, kernel), mode=mode)(*values)[0, 0].tolist()
        import scipy.signal, scipy.stats
        print(json.dumps([
            [chi2sf, scipy.stats.chi2.sf([0.5, 2.0], 3).tolist()],
            [full, scipy.signal.convolve2d(values[0][0, 0], values[1][0, 0]).tolist()],
        ]))
    """
    done = run_code(code, flags="cxx=,floatX=float64")
    assert done.returncode == 0, done.stderr
    for got, want in json.loads(done.stdout):
        assert got == want
