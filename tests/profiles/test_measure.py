"""The stopwatch counts and measures runs, and a run leaves nothing allocated."""

import gc

import pytest
import theano
import theano.tensor as tt

from profiles import measure, models, ways
from profiles.models import Model


@pytest.fixture(scope="module")
def specification():
    return measure.specify(models.build("mlp", depth=1, width=4))


@pytest.mark.slow
def test_phases_add_up_to_the_whole(specification):
    measurement = measure.optimize(specification, ways.stock())
    assert set(measurement.phases) == set(measure.PHASES)
    assert sum(measurement.phases.values()) == pytest.approx(measurement.seconds, rel=0.1, abs=0.01)
    assert measurement.phases["canonicalize"] > 0
    assert measurement.phases[measure.INPLACE] > 0


@pytest.mark.slow
def test_counts_are_those_of_a_real_compilation(specification):
    measurement = measure.optimize(specification, ways.stock())
    model = specification.model
    function = theano.function(model.inputs, model.outputs, updates=model.updates, mode=theano.Mode("py", "fast_run"))
    compiled = [node for node in function.maker.fgraph.apply_nodes if type(node.op).__name__ != "DeepCopyOp"]
    assert measurement.after == len(compiled)
    inplace = measurement.inplace + measurement.inplace_scalars
    assert inplace == sum(bool(getattr(node.op, "destroy_map", None)) for node in compiled)


@pytest.mark.slow
def test_each_run_starts_afresh(specification):
    runs = measure.alternate(specification, [ways.stock()], repeat=2)["stock"]
    assert runs[0].before == runs[1].before
    assert runs[0].after == runs[1].after
    assert runs[0].graph is None
    assert runs[1].graph is not None


@pytest.mark.slow
def test_baselines_differ_in_place(specification):
    inplace = {name: measure.optimize(specification, ways.stock(name)).inplace for name in ways.BASELINES}
    assert inplace["fast_run"] >= inplace["fast"]
    assert inplace["o3"] == 0


def test_unknown_baseline():
    with pytest.raises(ValueError, match="known are: fast_run, fast, o3"):
        ways.stock("slow")


@pytest.mark.slow
def test_flags_and_collector_are_left_alone(specification):
    before = theano.config.traceback.limit, theano.config.cycle_detection, gc.isenabled()
    measure.optimize(specification, ways.stock("fast"))
    assert (theano.config.traceback.limit, theano.config.cycle_detection, gc.isenabled()) == before


@pytest.mark.slow
def test_constants_are_not_cached_while_optimizing(specification, monkeypatch):
    seen = []
    apply = theano.gof.opt.MergeOptimizer.apply

    def watch(self, fgraph):
        seen.append(theano.tensor.basic.constant.enable)
        return apply(self, fgraph)

    monkeypatch.setattr(theano.gof.opt.MergeOptimizer, "apply", watch)
    measure.optimize(specification, ways.stock())
    assert seen
    assert not any(seen)


@pytest.mark.slow
def test_inner_nodes_of_fused_graphs_are_counted():
    x = tt.vector("x")
    specification = measure.specify(Model("fused", [x], [tt.exp(x) * 2 + 1], {}, []))
    measurement = measure.optimize(specification, ways.stock())
    assert measurement.after == 1
    assert measurement.inner == 3


@pytest.mark.slow
def test_a_rewriter_that_raises_is_noticed(specification):
    @theano.gof.local_optimizer([tt.elemwise.Elemwise])
    def broken(node):
        raise RuntimeError("planted")

    query = theano.compile.mode.optdb
    query["canonicalize"].register("planted_failure", broken, "fast_run")
    try:
        with theano.change_flags(on_opt_error="warn"):
            measurement = measure.optimize(specification, ways.stock())
    finally:
        query["canonicalize"].remove_tags("planted_failure", "fast_run")
    assert any("planted_failure" in message or "broken" in message for message in measurement.failures)


@pytest.mark.slow
def test_a_run_that_compiled_is_made_again(specification, monkeypatch):
    runs = iter([3, 0])
    optimize = measure.optimize

    def pretend(*arguments):
        measurement = optimize(*arguments)
        measurement.compiled = next(runs)
        return measurement

    monkeypatch.setattr(measure, "optimize", pretend)
    assert measure.optimize_warm(specification, ways.stock()).compiled == 0
    assert not list(runs)
