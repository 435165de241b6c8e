"""With floatX=float32, ops and models run on devices with and without double precision."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.tensor.special import log_softmax, softmax

import optdb.pytensor
from optdb.pytensor.narrowing import narrowed
from optdb.pytensor.tracing import DtypeNotOnDevice
from profiles.pytensor import densities, models
from tests.opencl_device import new_context
from tests.pytensor.comparing import sort_on_host

RNG = np.random.default_rng(6)
X, Y, V = (RNG.uniform(0.1, 0.9, size=shape).astype("float32") for shape in ((6, 6), (6, 6), 6))
K = np.array([0, 2, 2, 5, 1, 3])
POSITIVE = (X @ X.T + 6 * np.eye(6)).astype("float32")
x, y, v = pt.matrix("x", dtype="float32"), pt.matrix("y", dtype="float32"), pt.vector("v", dtype="float32")
k = pt.lvector("k")
VALUES = {x: X, y: Y, v: V, k: K}


class _WithoutDouble(optdb.pytensor.OpenCLLinker):
    @property
    def context(self):
        return _context_without_double()


@functools.cache
def _context_without_double():
    made = new_context()
    made.profile = replace(made.profile, float64=False)
    return made


WITHOUT = Mode(_WithoutDouble(), optdb.pytensor.OPENCL.provided_optimizer)
DEVICES = {"with double": optdb.pytensor.OPENCL, "without": WITHOUT}

#: For each family of ops, a function that returns the variables to compare; it is called with floatX=float32.
FAMILIES = {
    "scalars": lambda: [
        pt.exp(x) * pt.tanh(y),
        pt.gammaln(v),
        pt.psi(v),
        pt.log1mexp(v - 1),
        pt.softplus(v),
        pt.erfcx(v),
    ],
    "gradients of scalars": lambda: pytensor.grad((pt.gammaln(x) * pt.erf(y) ** x).sum(), [x, y]),
    "special functions": lambda: [pt.gammainc(x, y), pt.iv(1, v), pt.jv(0, v), pt.betainc(v, v + 1, v)],
    "floats and integers": lambda: [v * k, v + k, v / 3, v**2, k / 2.0, v**k, pt.switch(k > 2, v, 0)],
    "integers": lambda: [k / 2, k / (k + 1), pt.sqrt(k), pt.exp(k), pt.gammaln(k + 1), k.mean(), pt.logsumexp(k)],
    "constants": lambda: [v * np.arange(6.0), v + np.float64(2.5), v * np.pi, v - [0.5], pt.clip(v, 0.2, 0.5)],
    "reductions": lambda: [x.sum(0), x.prod(1), x.mean(), x.var(0), x.max(1), pt.argmax(x, 0), pt.any(x > 0.5, 1)],
    "reductions in double": lambda: [pt.sum(x, dtype="float64"), pt.prod(v, acc_dtype="float64"), k.std()],
    "cumulative sums": lambda: [pt.cumsum(x, 0), pt.cumprod(v), pt.cumsum(k)],
    "softmax": lambda: [softmax(x, axis=1), pytensor.grad((log_softmax(x, axis=1) * y).sum(), x), pt.logsumexp(x)],
    "products": lambda: [x @ y, x @ v, v @ v, x @ k, pt.outer(v, k), pt.matmul(x[None], y[None])],
    "factors": lambda: [pt.linalg.cholesky(x @ x.T + 6 * pt.eye(6)), pt.linalg.solve_triangular(x + pt.eye(6), v)],
    "host": lambda: [sort_on_host(v), pt.linalg.det(x), pt.linalg.inv(x + 6 * pt.eye(6)), sort_on_host(v * k)],
    "parts": lambda: [x[k], x[1:, ::-1], pt.set_subtensor(x[1], v), pt.inc_subtensor(x[k], y), v[v > 0.5]],
    "joins": lambda: [pt.concatenate([[1.0], v]), pt.stack([v, k]), pt.concatenate([x, pt.ones((1, 6))])],
    "creation": lambda: [
        pt.zeros(3),
        pt.arange(3.0),
        pt.eye(2, dtype="float64"),
        pt.full((2,), 0.5),
        pt.linspace(0, 1, 5),
    ],
    "casts": lambda: [v.astype("float64") * 2, k.astype("float64"), (v.astype("float64") > 0.5).astype("int8")],
    "shapes": lambda: [x.T, x.reshape((4, 9)), x.mean(axis=1) / x.shape[0], pt.tile(v, 2), pt.diag(v)],
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_families(family, device):
    with pytensor.config.change_flags(floatX="float32"):
        results = FAMILIES[family]()
        function = pytensor.function([*VALUES], results, mode=DEVICES[device], on_unused_input="ignore")
        reference = pytensor.function([*VALUES], results, mode=Mode("py", None), on_unused_input="ignore")
    for expected, computed in zip(reference(*VALUES.values()), function(*VALUES.values()), strict=True):
        wanted = expected.dtype if device == "with double" else str(expected.dtype).replace("float64", "float32")
        assert computed.dtype == wanted and computed.shape == expected.shape
        np.testing.assert_allclose(computed, expected, rtol=3e-5, atol=3e-5)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", models.MODELS)
def test_models(name, device, monkeypatch):
    size = models.entry(name).small
    double = densities.compiled(name, size, "python")
    monkeypatch.setattr(densities.sides, "load", lambda side: DEVICES[device])
    with pytensor.config.change_flags(floatX="float32"):
        single = densities.compiled(name, size, "opencl")
    for point in double.points:
        expected, computed = double(point), single(point.astype("float32"))
        for part, of_single in zip(expected, computed, strict=True):
            assert densities.difference(part, of_single) < 1e-4
    assert not single.function.vm.jit_fn.host.reasons


def test_inputs_in_double_precision_are_refused():
    double, shared = pt.dvector("double"), pytensor.shared(np.zeros(3), "weights")
    with (
        pytensor.config.change_flags(floatX="float32"),
        pytest.raises(DtypeNotOnDevice, match=r"float64 inputs: double, weights; .* the cure: convert them to float32"),
    ):
        pytensor.function([double], double * shared, mode=WITHOUT)


def test_a_graph_of_single_precision_keeps_its_inputs_and_updates():
    shared = pytensor.shared(np.zeros(6, "float32"), "shared")
    with pytensor.config.change_flags(floatX="float32"):
        f = pytensor.function([v], (v * k.mean()).sum(), updates=[(shared, shared + v)], mode=WITHOUT, givens={k: K})
        fgraph = f.maker.fgraph
        graph = narrowed(fgraph, "")
        f(V)
        f(V)
    assert graph.inputs == fgraph.inputs and graph.update_mapping == fgraph.update_mapping
    np.testing.assert_allclose(shared.get_value(), 2 * V)


@pytest.mark.parametrize("device", DEVICES)
def test_random_variables(device):
    """Standard uniform numbers equal PyTensor's; other numbers need double precision, or differ from PyTensor's."""
    random_on_device = optdb.pytensor.opencl_mode(random="device").linker
    linker = _WithoutDouble(random="device") if device == "without" else random_on_device
    cases = [
        (pt.random.uniform, (0.0, 1.0), DEVICES[device], True),
        (pt.random.uniform, (2.0, 5.0), DEVICES[device], device == "with double"),
        (pt.random.normal, (2.0, 5.0), Mode(linker, WITHOUT.provided_optimizer), True),
        (pt.random.integers, (2, 5), Mode(linker, WITHOUT.provided_optimizer), device == "with double"),
    ]
    with pytensor.config.change_flags(floatX="float32"):
        for variable, parameters, mode, is_on_device in cases:
            rng = pytensor.shared(np.random.default_rng(4))
            following, draws = variable(*parameters, size=(5000,), rng=rng, return_next_rng=True)
            function = pytensor.function([], draws, updates={rng: following}, mode=mode)
            reference = np.random.default_rng(4)
            for _ in range(3):
                computed = function()
                expected = getattr(reference, variable.name)
                assert computed.dtype == draws.type.dtype
                if not is_on_device or variable is pt.random.uniform:
                    wanted = expected(*parameters, size=5000).astype(computed.dtype)
                    np.testing.assert_array_equal(computed, wanted)
            assert bool(function.vm.jit_fn.host.reasons) is not is_on_device
