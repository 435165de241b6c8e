"""Random variables on a device draw NumPy's values, and leave the generators in the same states as NumPy."""

from __future__ import annotations

import copy
import pickle
import signal

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pytensor.compile.mode import Mode
from pytensor.raise_op import Assert

import optdb.pytensor
from fuzzing.interrupts import interrupt_at
from tests.effort import examples
from tests.pytensor.comparing import mode_of_kind

ON_DEVICE = "advancing a random generator by"


def generator(seed: int = 3, has_half: bool = False) -> np.random.Generator:
    """Return a generator; with `has_half`, it holds the unused half of a 64-bit word."""
    made = np.random.default_rng(seed)
    if has_half:
        made.integers(0, 10, dtype="int32")
    return made


def state_of(rng):
    return rng.get_value().bit_generator.state


def drawn(variable, *parameters, rng=None, mode="OPENCL", calls=3, **options):
    """Return a function that draws a random variable, what it draws in some calls, and its shared generator."""
    rng = pytensor.shared(generator() if rng is None else rng)
    following, draws = variable(*parameters, rng=rng, return_next_rng=True, **options)
    function = pytensor.function([], draws, updates={rng: following}, mode=mode)
    return function, [function() for _ in range(calls)], rng


def assert_drawn_like_numpy(variable, *parameters, rtol=0.0, **options):
    """Assert that the device and PyTensor's Python code draw the same values, and leave the same states."""
    function, computed, rng = drawn(variable, *parameters, **options)
    options["mode"] = Mode("py", None)
    _, expected, reference = drawn(variable, *parameters, **options)
    for one, other in zip(computed, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=rtol or 0, atol=rtol)
    assert state_of(rng) == state_of(reference)
    assert not function.vm.jit_fn.host.reasons
    return function


@st.composite
def uniform_draws(draw):
    """Draw parameters, a size, a dtype, and a generator."""
    size = draw(st.lists(st.integers(0, 5), max_size=3).map(tuple))
    lengths = [tuple(draw(st.sampled_from([1, length])) for length in size) for _ in range(2)]
    number = st.floats(-1e3, 1e3, width=32)
    low, span = (draw(hnp.arrays(draw(st.sampled_from(["float32", "float64"])), n, elements=number)) for n in lengths)
    given_size = draw(st.booleans())
    dtype = draw(st.sampled_from(["float32", "float64"]))
    return low, low + abs(span), size if given_size else None, dtype, draw(st.integers(0, 2**64)), draw(st.booleans())


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(uniform_draws(), st.sampled_from(["cpu", "gpu"]))
def test_uniform_draws_are_bitwise_those_of_numpy(case, kind):
    low, high, size, dtype, seed, has_half = case
    rng = generator(seed, has_half)
    expected = copy.deepcopy(rng)
    _, computed, shared = drawn(pt.random.uniform, low, high, size=size, dtype=dtype, rng=rng, mode=mode_of_kind(kind))
    for draws in computed:
        wanted = np.asarray(expected.uniform(low, high, size), dtype)
        assert draws.dtype == dtype
        assert draws.shape == wanted.shape
        np.testing.assert_array_equal(draws, wanted)
    assert state_of(shared) == expected.bit_generator.state


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [(), (0,), (3, 0, 2), (70, 61), (40_001,), None])
def test_standard_uniform_draws(size, dtype):
    assert_drawn_like_numpy(pt.random.uniform, size=size, dtype=dtype)


PARAMETERS = {
    "triangular": (pt.random.triangular, -1.0, 0.5, 4.0),
    "laplace": (pt.random.laplace, 1.0, [[2.0], [0.3]]),
    "logistic": (pt.random.logistic, [1.0, -2.0], 0.7),
    "pareto": (pt.random.pareto, [1.5, 3.0], 2.0),
    "halfcauchy": (pt.random.halfcauchy, 1.0, 2.0),
}


@pytest.mark.parametrize("dtype, rtol", [("float64", 1e-13), ("float32", 1e-5)])
@pytest.mark.parametrize("name", PARAMETERS)
def test_draws_by_inversion(name, dtype, rtol):
    variable, *parameters = PARAMETERS[name]
    assert_drawn_like_numpy(variable, *parameters, size=(2, 2), dtype=dtype, rtol=rtol)
    assert_drawn_like_numpy(variable, *parameters, dtype=dtype, rtol=rtol)


def test_triangular_draws_are_bitwise_those_of_numpy():
    assert_drawn_like_numpy(pt.random.triangular, -1.0, [0.25, 0.5], 4.0, size=(900, 2))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", [None, (500, 4), (0, 4)])
def test_categorical_draws(size, dtype):
    p = np.random.default_rng(1).dirichlet(np.ones(6), (4,)).astype(dtype)
    assert_drawn_like_numpy(pt.random.categorical, p, size=size)
    assert_drawn_like_numpy(pt.random.categorical, p[0], size=size)
    # The probabilities add up to 0.5, so some of the drawn numbers are larger than their sum.
    assert_drawn_like_numpy(pt.random.categorical, p * np.asarray(0.5, dtype), size=size)


@pytest.mark.parametrize("host_linker", [["numba", "py"]], indirect=True)
def test_bernoulli_draws_are_those_of_numba():
    p = np.array([0.0, 0.2, 0.5, 1.0])
    function, computed, rng = drawn(pt.random.bernoulli, p, size=(300, 4))
    reference = generator()
    for draws in computed:
        assert draws.dtype == "int64"
        np.testing.assert_array_equal(draws, ~(p < reference.uniform(size=(300, 4))))
    assert state_of(rng) == reference.bit_generator.state
    assert not function.vm.jit_fn.host.reasons


def test_bernoulli_draws_without_numba_are_those_of_python():
    function, computed, _ = drawn(pt.random.bernoulli, 0.3, size=(5000,))
    _, expected, _ = drawn(pt.random.bernoulli, 0.3, size=(5000,), mode=Mode("py", None))
    np.testing.assert_array_equal(computed, expected)
    assert "varying number" in optdb.pytensor.explain(function)


# Generators


def chained(rng, mode="OPENCL", host=False):
    """Return a function that draws three variables from one generator; with `host`, the host draws the second one."""
    following, a = pt.random.uniform(size=(3000, 2), rng=rng, return_next_rng=True)
    middle = pt.random.normal if host else pt.random.laplace
    following, b = middle(a, 2.0, rng=following, return_next_rng=True)
    following, c = pt.random.uniform(-1, b.sum() ** 2, size=(50,), rng=following, return_next_rng=True)
    return pytensor.function([], [a, b, c], updates={rng: following}, mode=mode)


@pytest.mark.parametrize("host", [False, True])
def test_variables_that_share_a_generator(host):
    rngs = [pytensor.shared(generator()) for _ in range(2)]
    functions = [chained(rng, mode, host) for rng, mode in zip(rngs, ["OPENCL", Mode("py", None)])]
    for _ in range(4):
        for computed, expected in zip(*[function() for function in functions], strict=True):
            np.testing.assert_allclose(computed, expected, rtol=1e-12)
        assert state_of(rngs[0]) == state_of(rngs[1])
    assert optdb.pytensor.explain(functions[0]).count(ON_DEVICE) == 2 + (not host)


def test_a_generator_that_is_used_twice_and_not_updated_draws_the_same_numbers():
    rng = pytensor.shared(generator())
    _, a = pt.random.uniform(size=(5,), rng=rng, return_next_rng=True)
    _, b = pt.random.uniform(1.0, 3.0, size=(2, 4), rng=rng, return_next_rng=True)
    function = pytensor.function([], [a, b], mode="OPENCL")
    for _ in range(4):
        one, other = function()
        np.testing.assert_array_equal(one, generator().uniform(size=5))
        np.testing.assert_array_equal(other, generator().uniform(1, 3, size=(2, 4)))
    assert state_of(rng) == generator().bit_generator.state


@pytest.mark.slow
def test_functions_of_all_modes_share_a_generator():
    rng, reference = pytensor.shared(generator()), generator()
    following, draws = pt.random.uniform(size=(7,), rng=rng, return_next_rng=True)
    modes = ["OPENCL", Mode("py", "fast_run"), "OPENCL", "OPENCL_AUTO"]
    functions = [pytensor.function([], draws, updates={rng: following}, mode=mode) for mode in modes]
    for _ in range(4):
        for function in functions:
            np.testing.assert_array_equal(function(), reference.uniform(size=7))
    rng.set_value(generator(9))
    np.testing.assert_array_equal(functions[0](), generator(9).uniform(size=7))


def test_a_call_leaves_the_generator_that_it_got_as_it_was():
    rng = pt.random.rng("rng")
    following, draws = pt.random.uniform(size=(4,), rng=rng, return_next_rng=True)
    function = pytensor.function([rng], [following, draws], mode="OPENCL")
    mine = generator(has_half=True)
    before = mine.bit_generator.state
    for _ in range(3):
        after, values = function(mine)
        assert mine.bit_generator.state == before
        reference = copy.deepcopy(mine)
        np.testing.assert_array_equal(values, reference.uniform(size=4))
        assert after.bit_generator.state == reference.bit_generator.state
        assert after.spawn(1)[0].random() == reference.spawn(1)[0].random()


def test_lengths_that_calls_change():
    rng, reference = pytensor.shared(generator()), generator()
    n = pt.lscalar("n")
    following, draws = pt.random.uniform(size=(n, 2), rng=rng, return_next_rng=True)
    function = pytensor.function([n], draws, updates={rng: following}, mode="OPENCL")
    for length in (3, 0, 3, 5000, 3):
        np.testing.assert_array_equal(function(length), reference.uniform(size=(length, 2)))


@pytest.mark.parametrize("kind", ["MT19937", "Philox", "SFC64", "PCG64DXSM"])
def test_generators_of_other_kinds_stay_on_the_host(kind):
    rng = np.random.Generator(getattr(np.random, kind)(5))
    function, computed, _ = drawn(pt.random.uniform, size=(3,), rng=rng)
    reference = np.random.Generator(getattr(np.random, kind)(5))
    np.testing.assert_array_equal(computed, [reference.uniform(size=3) for _ in computed])
    assert "is no generator of PCG64" in optdb.pytensor.explain(function)


def test_a_generator_may_become_one_of_another_kind():
    function, _, rng = drawn(pt.random.uniform, size=(3,))
    for seed in range(3):
        rng.set_value(np.random.Generator(np.random.MT19937(seed)))
        reference = np.random.Generator(np.random.MT19937(seed))
        for _ in range(3):
            np.testing.assert_array_equal(function(), reference.uniform(size=3))
        rng.set_value(generator(seed))
        np.testing.assert_array_equal(function(), generator(seed).uniform(size=3))


def test_a_failed_call_leaves_the_state():
    rng, limit = pytensor.shared(generator()), pt.scalar("limit")
    following, draws = pt.random.uniform(size=(9,), rng=rng, return_next_rng=True)
    checked = Assert("too large")(draws, pt.all(draws < limit))
    function = pytensor.function([limit], checked, updates={rng: following}, mode="OPENCL")
    for _ in range(4):
        before = state_of(rng)
        with pytest.raises(AssertionError, match="too large"):
            function(0.0)
        assert state_of(rng) == before
        function(1.0)
        assert state_of(rng) != before


def test_an_interrupted_call_leaves_the_state_or_ends(monkeypatch):
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        total = pytensor.shared(np.zeros(3))
        rng = pytensor.shared(generator())
        following, draws = pt.random.uniform(size=(3,), rng=rng, return_next_rng=True)
        function = pytensor.function([], draws, updates={rng: following, total: total + draws}, mode="OPENCL")
        function()
        function()
        for event in range(1, 300, 7):
            states, values = state_of(rng), total.get_value()
            reference = copy.deepcopy(rng.get_value())
            wanted = values + reference.uniform(size=3)
            try:
                with interrupt_at(event):
                    function()
            except KeyboardInterrupt:
                pass
            if state_of(rng) == states:
                np.testing.assert_array_equal(total.get_value(), values)
            else:
                assert state_of(rng) == reference.bit_generator.state
                np.testing.assert_array_equal(total.get_value(), wanted)
    finally:
        signal.signal(signal.SIGINT, handler)


def test_repeated_and_begun_calls_advance_the_state_once_each():
    function, _, rng = drawn(pt.random.uniform, size=(3,), calls=0)
    reference = generator()
    expected = [reference.uniform(size=3) for _ in range(7)]
    np.testing.assert_array_equal(optdb.pytensor.call_n_times(function, 5), expected[4])
    begun = [optdb.pytensor.run_async(function) for _ in range(2)]
    np.testing.assert_array_equal([future.wait() for future in begun], expected[5:])
    assert state_of(rng) == reference.bit_generator.state


@pytest.mark.slow
def test_steps_of_a_loop_draw_on_the_host():
    rng = pytensor.shared(generator())
    states = pytensor.scan(
        lambda x: pt.random.uniform(x, x + 1, rng=rng, return_next_rng=True)[1],
        outputs_info=[pt.zeros(2)],
        n_steps=3,
        return_updates=False,
    )
    functions = [pytensor.function([], states, mode=mode) for mode in ("OPENCL", Mode("py", None))]
    np.testing.assert_array_equal(*[function() for function in functions])
    assert "in a step of a loop" in optdb.pytensor.explain(functions[0])


@pytest.mark.parametrize(
    "variable, parameters",
    [(pt.random.uniform, (1.0, 0.0)), (pt.random.uniform, (0.0, np.inf)), (pt.random.laplace, (0.0, -1.0))],
)
def test_wrong_constants_are_judged_by_the_host(variable, parameters):
    errors = []
    for mode in ("OPENCL", Mode("py", None)):
        with pytest.raises((ValueError, OverflowError)) as error:
            drawn(variable, *parameters, size=(3,), mode=mode)
        errors.append(error.type)
    assert errors[0] is errors[1]


def test_a_size_that_does_not_fit_is_refused_by_the_host():
    n = pt.lscalar("n")
    _, draws = pt.random.uniform(np.zeros(3), 1.0, size=(n,), rng=pytensor.shared(generator()), return_next_rng=True)
    function = pytensor.function([n], draws, mode="OPENCL")
    with pytest.raises(ValueError, match="mismatch"):
        function(4)


# Other draws

SCIPY = {
    "normal": (pt.random.normal, (1.0, 2.0), ("norm", (1.0, 2.0))),
    "halfnormal": (pt.random.halfnormal, (1.0, 2.0), ("halfnorm", (1.0, 2.0))),
    "lognormal": (pt.random.lognormal, (0.5, 0.3), ("lognorm", (0.3, 0.0, np.exp(0.5)))),
    "exponential": (pt.random.exponential, (3.0,), ("expon", (0.0, 3.0))),
    "cauchy": (pt.random.cauchy, (1.0, 2.0), ("cauchy", (1.0, 2.0))),
    "gumbel": (pt.random.gumbel, (1.0, 2.0), ("gumbel_r", (1.0, 2.0))),
    "weibull": (pt.random.weibull, (1.7,), ("weibull_min", (1.7,))),
}
DEVICE = optdb.pytensor.opencl_mode(random="device")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SCIPY)
def test_distributions_of_other_draws(name, dtype):
    import scipy.stats

    variable, parameters, (known, arguments) = SCIPY[name]
    function, computed, rng = drawn(variable, *parameters, size=(20_000,), dtype=dtype, mode=DEVICE)
    assert not function.vm.jit_fn.host.reasons
    draws = np.concatenate(computed)
    assert draws.dtype == dtype
    assert np.isfinite(draws).all()
    assert scipy.stats.kstest(draws, getattr(scipy.stats, known)(*arguments).cdf).pvalue > 1e-3
    assert state_of(rng) == generator().bit_generator.advance(draws.size).state
    _, again, _ = drawn(variable, *parameters, size=(20_000,), dtype=dtype, mode=DEVICE)
    np.testing.assert_array_equal(computed, again)


@pytest.mark.parametrize("dtype, bits, rtol", [("float64", 53, 1e-13), ("float32", 24, 2e-6)])
def test_other_draws_are_quantiles_of_words(dtype, bits, rtol):
    import scipy.special

    words = generator().bit_generator.random_raw(20_000) >> np.uint64(64 - bits)
    u = (words | np.uint64(1)) * 2.0**-bits
    _, (draws, *_), _ = drawn(pt.random.normal, size=u.shape, dtype=dtype, mode=DEVICE)
    np.testing.assert_allclose(draws, scipy.special.ndtri(u), rtol=rtol, atol=rtol)
    _, (draws, *_), _ = drawn(pt.random.exponential, size=u.shape, dtype=dtype, mode=DEVICE)
    np.testing.assert_allclose(draws, -np.log(u), rtol=rtol)


@pytest.mark.slow
@pytest.mark.parametrize("batch, size", [((), (2000,)), ((), None), ((1,), (7,)), ((3,), (500, 3)), ((3,), (0, 3))])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_multivariate_normal_draws(batch, size, dtype):
    import scipy.special

    mixed = np.random.default_rng(2).normal(size=(*batch, 4, 4))
    mean, covariance = np.arange(4.0), mixed @ mixed.swapaxes(-1, -2) + np.eye(4)
    parameters = [x.astype(dtype) for x in (mean, covariance)]
    function, computed, rng = drawn(pt.random.multivariate_normal, *parameters, size=size, dtype=dtype, mode=DEVICE)
    reference = generator()
    for draws in computed:
        shape = (*(batch if size is None else size), 4)
        words = reference.bit_generator.random_raw(int(np.prod(shape))) >> np.uint64(11 if dtype == "float64" else 40)
        u = (words | np.uint64(1)) / 2.0 ** (53 if dtype == "float64" else 24)
        standard = scipy.special.ndtri(u).reshape(shape)
        expected = mean + (np.linalg.cholesky(covariance) @ standard[..., None])[..., 0]
        assert draws.dtype == dtype
        np.testing.assert_allclose(draws, expected, rtol=0, atol=1e-10 if dtype == "float64" else 1e-4)
    assert state_of(rng) == reference.bit_generator.state
    assert not function.vm.jit_fn.host.reasons


def test_a_matrix_that_is_not_positive_definite_is_refused():
    rng, covariance = pytensor.shared(generator()), pt.matrix("covariance")
    following, draws = pt.random.multivariate_normal(np.zeros(3), covariance, rng=rng, return_next_rng=True)
    function = pytensor.function([covariance], draws, updates={rng: following}, mode=DEVICE)
    for _ in range(3):
        assert np.isfinite(function(np.eye(3))).all()
        before = state_of(rng)
        with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
            function(-np.eye(3))
        assert state_of(rng) == before


def test_normal_draws_are_independent():
    _, (draws,), _ = drawn(pt.random.normal, size=(300_000,), mode=DEVICE, calls=1)
    for moment, expected in ((draws, 0), (draws**2, 1), (draws**3, 0), (draws**4, 3), (draws[1:] * draws[:-1], 0)):
        assert abs(moment.mean() - expected) < 5 * moment.std() / np.sqrt(moment.size)


def test_integers_and_geometric_draws():
    import scipy.stats

    function, (draws, *_), _ = drawn(pt.random.integers, -3, [4, 7], size=(30_000, 2), mode=DEVICE)
    assert draws.dtype == "int64"
    assert not function.vm.jit_fn.host.reasons
    for column, (low, high) in zip(draws.T, [(-3, 4), (-3, 7)]):
        counts = np.bincount(column - low)
        assert len(counts) == high - low
        assert scipy.stats.chisquare(counts).pvalue > 1e-3
    _, (draws, *_), _ = drawn(pt.random.geometric, 0.3, size=(30_000,), mode=DEVICE)
    counts = np.bincount(draws, minlength=13)[1:13]
    expected = scipy.stats.geom(0.3).pmf(np.arange(1, 13))
    assert scipy.stats.chisquare(counts / counts.sum(), expected / expected.sum()).statistic * 30_000 < 35


@pytest.mark.parametrize("variable, parameters", [(pt.random.beta, (2.0, 1.0)), (pt.random.poisson, (3.0,))])
def test_others_are_drawn_on_the_host(variable, parameters):
    function, computed, rng = drawn(variable, *parameters, size=(4,), mode=DEVICE)
    _, expected, reference = drawn(variable, *parameters, size=(4,), mode=Mode("py", None))
    np.testing.assert_array_equal(computed, expected)
    assert state_of(rng) == state_of(reference)
    assert "is not among the random variables of the device" in optdb.pytensor.explain(function)


def test_exact_draws_are_the_same_with_other_draws_allowed():
    for mode in ("OPENCL", DEVICE):
        function, computed, _ = drawn(pt.random.uniform, size=(40,), mode=mode)
        reference = generator()
        np.testing.assert_array_equal(computed, [reference.uniform(size=40) for _ in computed])
    function, computed, _ = drawn(pt.random.normal, size=(40,))
    reference = generator()
    np.testing.assert_array_equal(computed, [reference.normal(size=40) for _ in computed])
    assert "random='device'" in optdb.pytensor.explain(function)


def test_copies_and_pickles_keep_the_option():
    function, (first, *_), _ = drawn(pt.random.normal, size=(40,), mode=DEVICE, calls=1)
    for other in (function.copy(), pickle.loads(pickle.dumps(function))):
        for container in other.input_storage:
            container.value = generator()
        np.testing.assert_array_equal(other(), first)


def test_options_that_are_refused():
    with pytest.raises(ValueError, match="it is one of 'exact', 'device'"):
        optdb.pytensor.opencl_mode(random="fast")
    with pytest.raises(ValueError, match="compares values"):
        optdb.pytensor.opencl_mode(auto=True, random="device")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["OPENCL", DEVICE], ids=["exact", "device"])
def test_prior_predictive_sampling(mode):
    import pymc as pm

    with pm.Model() as model:
        width = pm.Uniform("width", 1, 2)
        centre = pm.Laplace("centre", 0, width, shape=5000)
        pm.Normal("y", centre, width, shape=5000)
        sampled = [
            pm.sample_prior_predictive(20, random_seed=4, compile_kwargs={"mode": chosen}).prior
            for chosen in (mode, Mode("py", "fast_run"))
        ]
    names = ["width", "centre"] if mode is DEVICE else ["width", "centre", "y"]
    for name in names:
        np.testing.assert_allclose(*[draws[name].values for draws in sampled], rtol=1e-12)
    y, centres, widths = (sampled[0][name].values for name in ("y", "centre", "width"))
    scaled = (y - centres) / widths[..., None]
    assert abs(scaled.mean()) < 0.02
    assert abs(scaled.std() - 1) < 0.02
    assert model.named_vars.keys() == {"width", "centre", "y"}
