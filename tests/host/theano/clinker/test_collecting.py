"""Test values of small arrays are computed without a compiler."""

from __future__ import annotations

import pytest
import theano

from tests.processes import run_code, with_extensions

pytestmark = pytest.mark.skipif(not theano.config.cxx, reason="there is no C++ compiler")

CODE = """
    import optdb, theano, theano.tensor as tt
    import numpy as np
    from pathlib import Path
    from theano.gof import cmodule

    runs = []
    compile_str = cmodule.GCC_compiler.compile_str
    cmodule.GCC_compiler.compile_str = staticmethod(lambda *args, **kw: runs.append(1) or compile_str(*args, **kw))
    theano.config.compute_test_value = "raise"
    x, y = tt.dmatrix("x"), tt.dvector("y")
    x.tag.test_value, y.tag.test_value = np.full((SIZE, 3), 0.5), np.arange(3.0)
    z = tt.exp(x.dot(y)) * tt.gammaln(y + 1).sum() + x[:, 0] + tt.concatenate([y, y])[0]
    slope = theano.grad(z.sum(), x)
    before = len(runs)
    wanted = z.tag.test_value
    f = theano.function([x, y], [z, slope])
    got = f(x.tag.test_value, y.tag.test_value)
    np.testing.assert_allclose(got[0], wanted, rtol=1e-12)
    np.testing.assert_allclose(got[1], slope.tag.test_value, rtol=1e-12)
    try:
        x + tt.zeros((2, 4))
    except ValueError as error:
        print(before, "reported")
"""


def compilers_before_the_function(size, tmp_path, flags=""):
    flags = f"base_compiledir={with_extensions(tmp_path)},optdb.topo=True,{flags}"
    count, reported = run_code(CODE.replace("SIZE", str(size)), flags=flags).stdout.split()
    assert reported == "reported"
    return int(count)


def test_small_test_values_need_no_compiler(tmp_path):
    assert compilers_before_the_function(3, tmp_path) == 0


@pytest.mark.thorough
@pytest.mark.slow
def test_large_ones_and_those_of_theano_alone_do(tmp_path):
    assert compilers_before_the_function(5000, tmp_path / "large") > 0
    assert compilers_before_the_function(3, tmp_path / "theano", "optdb.clinker=False") > 3
