"""SciPy's largest packages are imported when Theano uses them, and then do what they do."""

from __future__ import annotations

import json

import pytest

from optdb.host.importing.compat import versions
from tests.processes import output, run_code

pytestmark = pytest.mark.skipif(
    versions.installed("scipy") < versions.SCIPY_LAZY, reason="this SciPy does not import its packages by itself"
)


@pytest.mark.slow
def test_importing_theano_leaves_them_out():
    code = """
        import sys, optdb, theano
        print(sorted({"scipy.stats", "scipy.signal"} & set(sys.modules)))
        import theano.scalar.basic_scipy, theano.tensor.nnet.conv as conv
        print(theano.scalar.basic_scipy.imported_scipy_special, conv.imported_scipy_signal)
        print("__import__" in vars(conv), conv.__builtins__["__import__"] is __import__)
    """
    assert output(code).splitlines() == ["[]", "True True", "False True"]


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
