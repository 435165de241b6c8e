"""No observer of new variables remains once a rewriter has ended, in whatever way."""

import gc
import weakref
from contextlib import nullcontext

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof import opt
from theano.gof.graph import Variable

import optdb


@pytest.mark.parametrize("with_engine", [False, True])
def test_after_a_product_that_would_overwrite_its_own_matrix(with_engine):
    x, w = tt.dmatrix("x"), theano.shared(np.eye(3), "w")
    mode = theano.Mode("py", "fast_run")
    with optdb.enable() if with_engine else nullcontext():
        # local_inplace_gemm raises InconsistencyError, which Theano's optimizer treats as a refusal.
        f = theano.function([x], w + w.dot(x), mode=mode)
        assert Variable.construction_observers == []
        forgotten = tt.exp(x)
        gone = weakref.ref(forgotten)
        del forgotten
        gc.collect()
        assert gone() is None
    np.testing.assert_array_equal(f(np.eye(3)), 2 * np.eye(3))


def test_traces_are_inherited_within_the_block_alone():
    x, y = tt.dvector("x"), tt.dvector("y")
    x.tag.trace = [[("file.py", 1, "function", "x = tt.dvector()")]]
    with opt.inherit_stack_trace(x):
        inner = tt.exp(y)
    outer = tt.exp(y)
    (inherited,) = x.tag.trace
    assert inherited in inner.tag.trace
    assert inherited not in outer.tag.trace


def test_blocks_within_blocks():
    x, y = tt.dvector("x"), tt.dvector("y")
    with pytest.raises(ZeroDivisionError), opt.inherit_stack_trace(x):
        with pytest.raises(KeyError), opt.inherit_stack_trace(y):
            raise KeyError
        assert len(Variable.construction_observers) == 1
        raise ZeroDivisionError
    assert Variable.construction_observers == []
