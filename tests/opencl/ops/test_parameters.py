"""A device op has the parameters of the host's op, whether the op cache is installed, was installed, or is off."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.signal.pool import pool_2d

import optdb
from optdb.cache.frozen import Freezer
from optdb.host.api.graph import op_classes
from optdb.opencl import lifters as _lifters  # noqa: F401  defines the counterparts
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.counterpart_base import CounterpartBase, counterpart_of
from tests.cache.op_parameters import import_all, parameter_sets

import_all()

_frozen = Freezer(changing=True)
_parameter_sets = functools.cache(parameter_sets)


def _is_lifted(cls) -> bool:
    """Tell whether the method `like` makes the counterpart of a host op; for reductions, a lifter makes it instead."""
    if issubclass(cls, CounterpartBase) or cls.__module__.startswith("theano.gpuarray"):
        return False
    counterpart = counterpart_of(cls)
    return counterpart is not None and counterpart.__name__ != "OpenCLCAReduce"


LIFTED = sorted(filter(_is_lifted, op_classes()), key=lambda cls: (cls.__module__, cls.__name__))
#: All lifted classes, except for classes of tests, and for base classes whose constructors need a subclass.
CLASSES = [cls for cls in LIFTED if cls.__module__.startswith(("theano.", "optdb.")) and _parameter_sets(cls)]

PARAMETERS = {
    "AdvancedSubtensor1": {"sparse_grad"},
    "TopKOp": {"axis", "sorted", "idx_dtype", "return_values", "return_indices"},
}


def parameters(cls) -> list[str]:
    """Return the names of the parameters that host ops store, except for those that concern C code or views."""
    names = list(inspect.signature(cls.__init__).parameters)[1:]
    assert PARAMETERS.get(cls.__name__, set()) <= set(names)
    return [name for name in names if name not in ("args", "kwargs", "openmp", "name", "view")]


@contextlib.contextmanager
def uninstalled():
    """Install the op cache, make ops, and uninstall the op cache."""
    with optdb.cache.install():
        for cls in CLASSES[:5]:
            device_ops(cls)
    yield


#: The states of the op cache. 'installed' is first, because a process keeps what it finds out about a class first.
CACHE = {"installed": optdb.cache.install, "uninstalled": uninstalled, "off": contextlib.nullcontext}


@pytest.fixture(scope="module", params=CACHE)
def cache(request):
    """Run tests in each state of the op cache that `CACHE` lists."""
    with CACHE[request.param]():
        yield


def host_ops(cls):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # some classes are deprecated
        return [cls(*args, **kwargs) for args, kwargs in _parameter_sets(cls)]


def device_ops(cls):
    return [counterpart_of(cls).like(op) for op in host_ops(cls)]


def check(cls, ops):
    """Compare the parameters of host ops with those of the device ops that are made from them."""
    for op in ops:
        like = counterpart_of(cls).like(op)
        for name in parameters(cls):
            assert _frozen(getattr(like, name)) == _frozen(getattr(op, name)), f"{name} of {cls.__name__}"
        for name in set(type(like).__props__) & set(cls.__props__):
            assert _frozen(getattr(like, name)) == _frozen(getattr(op, name)), f"{name} of {cls.__name__}"


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_parameters_are_those_of_the_host(cls, cache):
    check(cls, host_ops(cls))


def test_parameters_of_ops_made_before_the_cache_was_installed():
    ops = {cls: host_ops(cls) for cls in CLASSES}
    with optdb.cache.install():
        for cls in CLASSES:
            check(cls, ops[cls])
    for cls in CLASSES:
        check(cls, ops[cls])


def test_all_counterparts_are_tried():
    tried = {counterpart_of(cls) for cls in CLASSES}
    assert tried == {counterpart_of(cls) for cls in LIFTED}
    assert len(tried) >= 60


def test_ops_that_differ_have_device_ops_that_differ():
    with optdb.cache.install():
        like = device_ops(tt.extra_ops.CumOp)
    assert {(op.axis, op.mode) for op in like} >= {(None, "add"), (None, "mul"), (0, "add")}


class Kept(theano.Op):
    """An op with a parameter that `__props__` omits."""

    __props__ = ()

    def __init__(self, factor=1):
        self.factor = factor


def test_a_parameter_that_is_not_declared_is_an_error():
    class OpenCLKept(Counterpart, Kept):
        """The device op of a host op, with a parameter that it does not declare."""

    with pytest.raises(TypeError, match=r"does not copy factor(.|\n)*parameters = \('factor', ...\)"):
        OpenCLKept.like(Kept(2))

    class OpenCLKeptToo(Counterpart, Kept):
        """The device op of a host op, with a parameter that it declares."""

        parameters = ("factor",)

    assert OpenCLKeptToo.like(Kept(2)).factor == 2


def test_a_declared_parameter_that_the_host_lacks_is_an_error():
    class OpenCLOfAnother(Counterpart, Kept):
        parameters = ("factor", "offset")

    with pytest.raises(AttributeError, match="offset"):
        OpenCLOfAnother.like(Kept(2))


def test_a_common_dtype_that_nothing_casts_to_is_an_error():
    class OneDtype:
        common_dtype = 0

    with pytest.raises(TypeError, match=r"OpenCLView.common_dtype has no effect(.|\n)*derive from .*\.Counterpart"):

        class OpenCLView(OneDtype, CounterpartBase, Kept):
            """The device op of a host op, which keeps dtypes."""

    class OpenCLCasting(OneDtype, Counterpart, Kept):
        """A counterpart that casts."""

    assert OpenCLCasting.common_dtype == 0


x, i, m, q = tt.vector("x"), tt.lvector("i"), tt.matrix("m"), tt.tensor4("q")
V = np.arange(1, 5)
M = np.arange(9).reshape(3, 3)
GRAPHS = {
    "cumprod": ([x], lambda: tt.cumprod(x), [V]),
    "cumsum of an axis": ([m], lambda: tt.cumsum(m, axis=1), [M]),
    "set_subtensor": ([x, i], lambda: tt.set_subtensor(x[i], 7), [V, np.array([0, 2])]),
    "average": (
        [q],
        lambda: pool_2d(q, (2, 2), ignore_border=True, mode="average_exc_pad"),
        [np.arange(16).reshape(1, 1, 4, 4)],
    ),
    "diagonal": ([m], lambda: m.diagonal(1), [M]),
    "sort": ([m], lambda: tt.sort(m, axis=0), [M[::-1]]),
    "split": ([x], lambda: tt.split(x, [1, 3], 2)[1], [V]),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_values(name, cache):
    inputs, make, values = GRAPHS[name]
    values = [np.ascontiguousarray(value, var.type.dtype) for value, var in zip(values, inputs, strict=True)]
    want = theano.function(inputs, make(), mode=theano.Mode("py", None))(*values)
    got = theano.function(inputs, make(), mode=optdb.mode(device="opencl"))(*values)
    np.testing.assert_allclose(got, want)
