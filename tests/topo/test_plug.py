"""The engine can be enabled and disabled for all of Theano's compilations."""

from __future__ import annotations

import io
import pickle
import threading

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof import local_optimizer
from theano.gof.opt import EquilibriumOptimizer, MergeOptimizer, SeqOptimizer

import optdb
from optdb.host.api import c_code
from optdb.host.api.rewriters import FunctionNodeRewriter
from optdb.topo import TopoMode, TopoRewriter, collect, is_enabled
from optdb.topo.merge import IndexedMergeOptimizer
from tests.processes import run_code
from tests.topo.graphs import STOCK, unchanged

SERVED = (
    "useless",
    "canonicalize",
    "stabilize",
    "specialize",
    "uncanonicalize",
    "specialize_device",
    "scan_eqopt1",
    "scan_eqopt2",
)


@pytest.fixture(autouse=True)
def off_before_and_after():
    assert not is_enabled()
    yield
    optdb.disable()


def engines(optimizer):
    """Return, by name, the rewriters in a queried optimizer that belong to the engine."""
    if isinstance(optimizer, TopoRewriter):
        return {optimizer.name: optimizer}
    if isinstance(optimizer, SeqOptimizer):
        return {name: one for member in optimizer for name, one in engines(member).items()}
    return {}


def queried():
    return theano.compile.optdb.query(theano.gof.Query(["fast_run"]))


def compile_sin(mode=None):
    """Compile a function; return the names of the optimization phases that the engine ran."""
    x = tt.dvector("x")
    with collect() as results:
        theano.function([x], tt.sin(x), mode=mode)
    return {result.name for result in results}


# -- on and off


def test_enable_and_disable():
    assert compile_sin(STOCK) == {"topo"}, "its own database, and no phase of Theano's"
    optdb.enable()
    assert is_enabled()
    assert {"canonicalize", "stabilize", "specialize"} <= compile_sin(STOCK)
    optdb.disable()
    assert not is_enabled()
    assert compile_sin(STOCK) == {"topo"}


def test_both_may_be_said_twice():
    stock = theano.gof.EquilibriumDB.query
    optdb.enable()
    optdb.enable()
    optdb.disable()
    assert theano.gof.EquilibriumDB.query is stock
    optdb.disable()
    assert not is_enabled()


def test_as_a_context_manager():
    with optdb.enable():
        assert "canonicalize" in compile_sin(STOCK)
        with optdb.enable():
            pass
        assert is_enabled(), "the inner one leaves it as it was"
    assert not is_enabled()


def test_an_exception_ends_the_context():
    with pytest.raises(KeyError), optdb.enable():
        raise KeyError
    assert not is_enabled()


def test_enabled_for_good_outside_a_context():
    optdb.enable()
    with optdb.enable():
        pass
    assert is_enabled()


def test_disable_inside_a_context():
    with optdb.enable():
        optdb.disable()
        assert not is_enabled()
    assert not is_enabled()


# -- what the engine rewrites


def test_every_equilibrium_is_served():
    with optdb.enable():
        optimizer = queried()
    found = engines(optimizer)
    assert {*SERVED} <= {*found}
    assert not any(type(member) is EquilibriumOptimizer for member in flat(optimizer))
    assert not any(type(member) is MergeOptimizer for member in flat(optimizer))
    assert any(isinstance(member, IndexedMergeOptimizer) for member in flat(optimizer))
    blas = next(member for member in optimizer if member.name == "BlasOpt")
    assert engines(blas), "and what is inside of BlasOpt"


def flat(optimizer):
    yield optimizer
    if isinstance(optimizer, SeqOptimizer):
        for member in optimizer:
            yield from flat(member)


def names_of(optimizer):
    return [getattr(member, "name", None) for member in flat(optimizer)]


def test_the_sequence_is_theanos():
    """With the engine, Theano's phases are in the same order, and have the same members."""
    stock = queried()
    with optdb.enable():
        ours = queried()
    names = [member.name for member in stock]
    assert [member.name for member in ours if member.name in names] == names
    for theirs, mine in zip(stock, (member for member in ours if member.name in names), strict=True):
        if type(theirs) is EquilibriumOptimizer:
            # the engine also has optdb's own rules
            assert {str(one) for one in theirs.get_local_optimizers()} <= {
                str(one) for one in mine.get_local_optimizers()
            }
            assert [names_of(one) for one in theirs.global_optimizers] == [
                names_of(one) for one in mine.global_optimizers
            ]
            assert mine.max_use_ratio == theirs.max_use_ratio


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("style", ["theano", "plain"])
def test_third_party_rewriters_take_part(moment, style):
    """Rewriters can be registered in Theano's own database before or after the engine is enabled."""

    @local_optimizer([tt.sin])
    def local_third_party(node):
        if node.op == tt.sin:
            return [tt.cos(node.inputs[0])]

    if style == "plain":
        local_third_party = FunctionNodeRewriter(lambda fgraph, node: [tt.cos(node.inputs[0])], [tt.sin])

    def register():
        tt.opt.register_canonicalize(local_third_party, name="local_third_party")

    x = tt.dvector("x")
    with unchanged(theano.compile.optdb["canonicalize"]):
        if moment == "before":
            register()
        with optdb.enable():
            if moment == "after":
                theano.function([x], tt.sin(x), mode=STOCK)
                register()
            f = theano.function([x], tt.sin(x), mode=STOCK.excluding("inplace"))
        assert [node.op for node in f.maker.fgraph.toposort()] == [tt.cos]


def test_inner_graphs_of_scan_are_served():
    x = tt.dmatrix("x")
    output, _ = theano.scan(lambda row, total: total + (row * 2 / 2) ** 2 * 1, sequences=x, outputs_info=tt.zeros((3,)))
    with optdb.enable(), collect() as results:
        f = theano.function([x], output[-1], mode=STOCK)
    assert sum(result.name == "canonicalize" for result in results) >= 2
    value = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(f(value), (value**2).sum(axis=0))


def test_inner_graphs_of_opfromgraph_are_served():
    x = tt.dvector("x")
    inner = theano.OpFromGraph([x], [x * 2 / 2 + 0])
    with optdb.enable(), collect() as results:
        f = theano.function([x], inner(x), mode=STOCK)
        np.testing.assert_allclose(f([1.0, 2.0]), [1.0, 2.0])
    assert sum(result.name == "canonicalize" for result in results) >= 2


# -- modes


def test_a_mode_is_served_without_enable():
    assert {"canonicalize", "stabilize", "specialize"} <= compile_sin(optdb.mode(STOCK))
    assert not is_enabled()
    assert compile_sin(STOCK) == {"topo"}


def test_modes_are_derived_as_theanos():
    mode = optdb.mode(STOCK)
    for derived in (mode.including("fast_compile"), mode.excluding("canonicalize"), mode.requiring("fast_run")):
        assert isinstance(derived, TopoMode)
    phases = compile_sin(mode.excluding("canonicalize"))
    assert "canonicalize" not in phases
    assert "specialize" in phases
    assert mode.provided_linker == STOCK.provided_linker


def test_a_mode_takes_names_modes_and_none():
    assert isinstance(optdb.mode("FAST_COMPILE"), TopoMode)
    assert "fast_compile" in optdb.mode("FAST_COMPILE").provided_optimizer.include
    assert isinstance(optdb.mode(None), TopoMode)
    assert isinstance(optdb.mode(), TopoMode)
    for wrong in (3, ["FAST_RUN"]):
        with pytest.raises(TypeError, match="Mode"):
            optdb.mode(wrong)


def test_a_mode_of_no_optimizer():
    x = tt.dvector("x")
    with collect() as results:
        f = theano.function([x], tt.sin(x) * 1, mode=optdb.mode(theano.Mode("py", None)))
    assert results == []
    np.testing.assert_allclose(f([0.5]), np.sin([0.5]))


def test_the_mode_named_topo():
    assert isinstance(theano.compile.get_mode("TOPO"), TopoMode)
    with theano.change_flags(linker="py", mode="TOPO"):
        assert "canonicalize" in compile_sin()
    assert "canonicalize" in compile_sin("TOPO")


def test_a_rewriter_may_be_registered_in_a_mode():
    """Mode.register puts a graph rewriter at a position, as with Theano's own modes."""
    calls = []

    class Note(theano.gof.Optimizer):
        def apply(self, fgraph):
            calls.append(len(fgraph.apply_nodes))

    compile_sin(optdb.mode(STOCK).register((Note(), 1.1)))
    assert calls


# -- profiles, checks, pickles


def profile_of(mode, **flags):
    x = tt.dmatrix("x")
    with theano.change_flags(profile=True, profile_optimizer=True, **flags):
        profile = theano.compile.ProfileStats(atexit_print=False)
        f = theano.function([x], (x * 2 / 2).sum() ** 8, mode=mode, profile=profile)
    return f, profile


def test_theanos_report_shows_the_engines_figures():
    _, profile = profile_of(optdb.mode(STOCK))
    stream = io.StringIO()
    rewriter, figures = profile.optimizer_profile
    rewriter.print_profile(stream, figures)
    report = stream.getvalue()
    assert "canonicalize" in report
    assert "engine: canonicalize: converged after" in report
    assert "local_" in report, "the rewriters are listed by name"
    assert "attempts" in report


def test_the_profile_of_a_function_prints():
    f, profile = profile_of(optdb.mode(STOCK))
    f(np.ones((2, 2)))
    stream = io.StringIO()
    profile.summary(file=stream)
    assert "Optimizer Profile" in stream.getvalue()
    assert "engine: specialize" in stream.getvalue()


def test_profiles_are_merged():
    """print_global_stats merges the profiles of all functions of a process."""
    (rewriter, one), (_, other) = (profile_of(optdb.mode(STOCK))[1].optimizer_profile for _ in range(2))
    merged = rewriter.merge_profile(one, other)
    stream = io.StringIO()
    rewriter.print_profile(stream, merged)
    assert "engine: canonicalize: converged" in stream.getvalue()


def test_a_phase_adds_up():
    """The merged profile of two equal runs has twice the numbers of one run, for Theano's phases and the engine's."""
    x = tt.dmatrix("x")
    with optdb.enable():
        phase = theano.compile.optdb["canonicalize"].query("+fast_run")
    profiles = []
    for _ in range(2):
        fgraph = theano.gof.FunctionGraph([x], [(x + x.T.T) / 2], clone=True)
        fgraph.profile = theano.compile.ProfileStats(atexit_print=False)
        profiles.append(phase.optimize(fgraph))
    merged = TopoRewriter.merge_profile(*profiles)
    assert len(merged) == len(profiles[0])
    assert merged[-1].applications == 2 * profiles[0][-1].applications > 0
    TopoRewriter.print_profile(io.StringIO(), merged)


@pytest.mark.slow
def test_debugmode_works_with_the_engine():
    """DebugMode checks the values of each rewrite."""
    from theano.compile.debugmode import DebugMode

    x = tt.dvector("x")
    with optdb.enable(), collect() as results:
        f = theano.function([x], tt.exp(x * 2 / 2) + x**4, mode=DebugMode(check_c_code=False, check_py_code=True))
    assert any(result.name == "canonicalize" for result in results)
    np.testing.assert_allclose(f([0.0, 1.0]), np.exp([0.0, 1.0]) + np.array([0.0, 1.0]) ** 4)


@pytest.mark.parametrize("how", ["mode", "enabled"])
def test_a_function_travels(how):
    """A function that is pickled while the engine is enabled can be loaded without the engine."""
    x = tt.dvector("x")
    w = theano.shared(np.ones(2), "w")
    mode = optdb.mode(STOCK) if how == "mode" else STOCK
    if how == "enabled":
        optdb.enable()
    f = theano.function([x], tt.exp(x * 2 / 2) * w, updates=[(w, w + 1)], mode=mode)
    text = pickle.dumps(f)
    if how == "enabled":
        assert b"optdb.topo" not in text, "it loads where optdb is not installed"
    optdb.disable()
    g = pickle.loads(text)
    np.testing.assert_allclose(g([0.0, 1.0]), np.exp([0.0, 1.0]))
    np.testing.assert_allclose(g([0.0, 1.0]), 2 * np.exp([0.0, 1.0]))
    assert w.get_value().tolist() == [1, 1]


def test_a_mode_travels():
    mode = pickle.loads(pickle.dumps(optdb.mode(STOCK).excluding("canonicalize")))
    assert isinstance(mode, TopoMode)
    assert "canonicalize" not in compile_sin(mode)


def test_functions_are_copied():
    x = tt.dvector("x")
    w = theano.shared(np.ones(2), "w")
    f = theano.function([x], x * w, updates=[(w, w + 1)], mode=optdb.mode(STOCK))
    other = f.copy(share_memory=False)
    f([1.0, 1.0])
    np.testing.assert_array_equal(np.ravel(other([1.0, 1.0])), [2, 2], "w is shared by both")


@pytest.mark.parametrize("shapes", [True, False])
def test_shapes_may_be_left_out(shapes):
    """Without optdb.shapes, lengths are computed from arrays, with the same values."""
    x = tt.dmatrix("x")
    filled = tt.alloc(1.0, x.shape[0], x.shape[1]) * tt.exp(x)
    flags = {"optdb.shapes": shapes, "on_opt_error": "raise"}
    with theano.change_flags(**flags), optdb.enable():
        f = theano.function([x], [tt.dot(x, x.T).shape[0], tt.grad(filled.sum(), x)], mode=STOCK)
    assert hasattr(f.maker.fgraph, "shape_feature") == shapes
    value = np.arange(6.0).reshape(2, 3)
    length, gradient = f(value)
    assert length == 2
    np.testing.assert_allclose(gradient, np.exp(value))


def compile_loop(mode=None):
    """Compile a function with a loop; return the names of the optimization phases that the engine ran."""
    x = tt.dmatrix("x")
    states, _ = theano.scan(lambda row, state: tt.tanh(row + state) ** 2, sequences=x, outputs_info=tt.zeros(3))
    with collect() as results:
        f = theano.function([x], states[-1], mode=mode)
    assert np.isfinite(f(np.ones((2, 3)))).all()
    return [result.name for result in results]


@pytest.mark.parametrize("mode", [optdb.mode, lambda: "TOPO"], ids=["mode", "TOPO"])
def test_a_mode_serves_the_inner_function_of_a_scan_as_enable_does(mode):
    with optdb.enable():
        enabled = compile_loop()
    assert compile_loop(mode()) == enabled
    assert enabled.count("canonicalize") > 1


def test_a_mode_lets_optdb_build_the_c_code_and_leaves_nothing_on(monkeypatch):
    built = []
    monkeypatch.setattr(c_code, "install", lambda: built.append(is_enabled()))
    compile_sin(optdb.mode())
    assert built
    assert not any(built)  # the engine is enabled only in this thread
    assert "canonicalize" not in compile_sin()


def test_while_one_thread_compiles_with_a_mode_others_get_theanos_optimizer():
    started, finished, seen = threading.Event(), threading.Event(), []

    @local_optimizer([tt.sin])
    def wait(node):
        started.set()
        assert finished.wait(30)

    def query_elsewhere():
        assert started.wait(30)
        seen.append(engines(queried()))
        finished.set()

    thread = threading.Thread(target=query_elsewhere)
    thread.start()
    x = tt.dvector("x")
    with collect() as results:
        theano.function([x], tt.sin(x), mode=optdb.mode().register((theano.gof.opt.in2out(wait, name="wait"), 1.1)))
    thread.join()
    [elsewhere] = seen
    assert "canonicalize" not in elsewhere
    assert "canonicalize" in {result.name for result in results}


def test_a_function_keeps_the_engine_that_another_thread_disables():
    @local_optimizer([tt.sin])
    def turn_off(node):
        optdb.disable()

    x = tt.dvector("x")
    mode = optdb.mode().register((theano.gof.opt.in2out(turn_off, name="turn_off"), 1.1))
    states, _ = theano.scan(lambda row, s: tt.tanh(row + s), sequences=x, outputs_info=tt.zeros(()))
    with collect() as results:
        theano.function([x], [tt.sin(x), states[-1]], mode=mode)
    assert [result.name for result in results].count("canonicalize") > 1


@pytest.mark.thorough_cases("mode = None", "optdb.enable(); mode = None", "mode = optdb.mode()")
@pytest.mark.slow
@pytest.mark.parametrize(
    "enter", ["optdb.enable(); mode = None", "mode = optdb.mode()", "mode = 'TOPO'", "mode = None"]
)
def test_threads_compile_at_once_from_empty_caches(tmp_path, enter):
    code = f"""
import threading
import optdb
import numpy as np, theano, theano.tensor as tt
{enter}
errors = []
def compile_some(k):
    try:
        for shift in range(2):
            x, w = tt.matrix("x"), theano.shared(np.eye(4) * (k + 1))
            states, _ = theano.scan(lambda v, s: tt.tanh(s + v * (k + 1)), sequences=x, outputs_info=tt.zeros(4))
            f = theano.function([x], [tt.nnet.sigmoid(x.dot(w)) + shift, states[-1]], updates=[(w, w / 2)], mode=mode)
            value, state = np.ones((3, 4)), np.zeros(4)
            for row in value:
                state = np.tanh(state + row * (k + 1))
            first, last = f(value)
            np.testing.assert_allclose(first, 1 / (1 + np.exp(-value * (k + 1))) + shift)
            np.testing.assert_allclose(last, state)
    except BaseException as error:
        errors.append(error)
        raise
threads = [threading.Thread(target=compile_some, args=(k,)) for k in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not errors, errors
"""
    flags = f"base_compiledir={tmp_path},optdb.clinker=auto,gcc.cxxflags=-O0,floatX=float64,on_opt_error=raise"
    done = run_code(code, env={"THEANO_FLAGS": flags})
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_precision_of_products_is_set_until_the_end():
    with optdb.enable(matmul_precision="default"):
        assert is_enabled() and theano.config.optdb.matmul_precision == "default"
    assert not is_enabled() and theano.config.optdb.matmul_precision == "highest"


def test_a_precision_that_there_is_not_enables_nothing():
    with pytest.raises(optdb.flags.FlagError, match="highest or high or default"):
        optdb.enable(matmul_precision="tf32")
    assert not is_enabled() and theano.config.optdb.matmul_precision == "highest"
