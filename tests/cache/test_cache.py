"""Equal ops are one object while the cache is installed."""

from __future__ import annotations

import gc
import sys
import textwrap
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import theano
import theano.scalar as ts
import theano.sparse
import theano.tensor as tt
from theano.gof import Apply, Op
from theano.gof.op import PureOp
from theano.gof.utils import MetaObject
from theano.tensor.elemwise import DimShuffle, Elemwise, Sum

import optdb
from optdb.cache import SharedOpChanged, SingletonOp
from optdb.cache.singleton import SingletonMeta
from optdb.host.api.graph import op_classes
from tests.processes import output, python


class Scale(Op):
    __props__ = ("factor", "mode")
    made = 0

    def __init__(self, factor=2, mode="a"):
        self.factor = factor
        self.mode = mode
        type(self).made += 1

    def make_node(self, x):
        x = tt.as_tensor_variable(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] * self.factor


class SubScale(Scale):
    """Inherits its props."""


@pytest.fixture(autouse=True)
def installed():
    with optdb.cache.install():
        yield


def test_positional_keyword_and_default_arguments():
    ops = [Scale(), Scale(2), Scale(factor=2), Scale(2, "a"), Scale(mode="a", factor=2)]
    assert all(op is ops[0] for op in ops)
    assert Scale(3) is not ops[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        (1.0, np.float64(1)),
        (np.float32(1), np.float64(1)),
        (np.dtype("float32"), "float32"),
        ((1, (2,)), (1, (2.0,))),
    ],
)
def test_types_count(one, other):
    a, b = Scale(one), Scale(other)
    assert a is not b
    assert a == b, "Theano compares props with =="
    assert type(a.factor) is type(one)
    assert type(b.factor) is type(other)


def test_nan_is_nan():
    assert Scale(float("nan")) is Scale(float("nan"))
    assert Scale(np.float32("nan")) is Scale(np.float32("nan"))


def test_a_subclass_never_shares_with_its_parent():
    assert SubScale(2) is not Scale(2)
    assert SubScale(2) != Scale(2)
    assert SubScale(2) is SubScale(factor=2)


def test_init_never_runs_on_a_shared_op():
    class Fragile(Op):
        __props__ = ("value",)

        def __init__(self, value):
            assert not hasattr(self, "value"), "made twice"
            self.value = value

    assert Fragile(1) is Fragile(1)


def test_ops_of_the_modules_are_the_ones():
    assert Elemwise(ts.add) is tt.add
    assert Elemwise(ts.exp) is tt.exp
    assert ts.Exp(ts.upgrade_to_float) is ts.exp
    assert tt.Dot() is tt.basic._dot


def test_names_are_kept():
    named = Elemwise(ts.add, name="plus")
    assert str(named) == "plus"
    assert named is not tt.add
    assert named == tt.add
    assert hash(named) == hash(tt.add)
    assert Elemwise(ts.add, name="plus") is named


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: tt.AdvancedSubtensor1(sparse_grad=True), lambda: tt.AdvancedSubtensor1(sparse_grad=False)),
        (lambda: theano.sparse.SparseFromDense("csr"), lambda: theano.sparse.SparseFromDense("csc")),
        (lambda: Elemwise(ts.add, nfunc_spec=("add", 2, 1)), lambda: Elemwise(ts.add, nfunc_spec=("subtract", 2, 1))),
        (lambda: Elemwise(ts.add, openmp=True), lambda: Elemwise(ts.add, openmp=False)),
        (lambda: ts.Add(ts.upcast_out), lambda: ts.Add(ts.transfer_type(0))),
        (lambda: ts.InRange(True, False), lambda: ts.InRange(True, True)),
    ],
)
def test_what_the_props_leave_out(one, other):
    assert one() is not other()
    assert one() is one()


def test_inplace_patterns_may_be_dicts():
    op = Elemwise(ts.add, {0: 0})
    assert Elemwise(ts.add, inplace_pattern={0: 0}) is op
    assert Elemwise(ts.add, {0: 1}) is not op
    assert Elemwise(ts.Add(ts.transfer_type(0)), {0: 0}) is Elemwise(ts.Add(ts.transfer_type(0)), {0: 0})


def test_calls_with_arguments_that_only_look_alike():
    assert DimShuffle((False, True), (0, 1)) is not DimShuffle((0, 1), (0, 1))
    assert DimShuffle((False,), [0, "x"]) is DimShuffle((False,), (0, "x"))
    assert DimShuffle((False,), (0,), inplace=True) is DimShuffle((False,), (0,))
    assert DimShuffle((False,), (0,), True) is DimShuffle((False,), (0,))
    with pytest.raises(ValueError, match="inplace"):
        DimShuffle((False,), (0,), inplace=1)


def test_a_flag_that_a_constructor_reads():
    with theano.change_flags(openmp=False):
        one = Elemwise(ts.mul, {0: 0})
    with theano.change_flags(openmp=True):
        other = Elemwise(ts.mul, {0: 0})
    assert one is not other
    assert (one.openmp, other.openmp) == (False, True)


def composite(number):
    x, y = ts.float64("x"), ts.float64("y")
    return ts.Composite([x, y], [ts.exp(x) * y + number])


def test_composites_by_their_graphs():
    assert composite(1.0) is composite(1.0)
    assert composite(1.0) is not composite(2.0)
    x, y = ts.float64(), ts.float64()
    assert ts.Composite([y, x], [ts.exp(x) * y + 1.0]) is not composite(1.0)


def loop(step, name=None, **options):
    x = tt.dmatrix("x")
    result, _ = theano.scan(step, sequences=x, outputs_info=tt.zeros(3), name=name, **options)
    node = result.owner
    while not isinstance(node.op, theano.scan_module.scan_op.Scan):
        node = node.inputs[0].owner
    return x, result, node.op


def test_scans_by_their_graphs():
    *_, op = loop(lambda a, b: tt.tanh(a + b))
    assert loop(lambda a, b: tt.tanh(a + b))[2] is op
    assert loop(lambda a, b: tt.tanh(a - b))[2] is not op
    assert loop(lambda a, b: tt.tanh(a + b), name="other")[2] is not op
    assert loop(lambda a, b: tt.tanh(a + b), mode="FAST_COMPILE")[2] is not op


def test_scans_with_notes_at_variables_of_their_graphs_are_left_alone():
    def noting(note):
        def step(a, b):
            out = tt.tanh(a + b)
            out.tag.note = note
            return out

        return loop(step)[2]

    loop(lambda a, b: tt.tanh(a + b))
    assert [noting(note).outputs[0].tag.note for note in (1, 2)] == [1, 2]
    reason = ("theano.scan_module.scan_op.Scan", "has tags on variables of its inner graph")
    assert reason in optdb.cache.stats().uncached


def test_scans_in_scans_are_shared():
    def rows(a, b):
        totals, _ = theano.scan(lambda c, d: c + d, sequences=a, outputs_info=tt.zeros(()))
        return b + totals[-1]

    assert loop(rows)[2] is loop(rows)[2]


def test_scans_whose_variables_the_user_exempts_from_nan_guard_mode_are_left_alone():
    def exempting(a, b):
        out = tt.tanh(a + b)
        out.tag.nan_guard_mode_check = False
        return out

    loop(lambda a, b: tt.tanh(a + b))
    assert loop(exempting)[2].outputs[0].tag.nan_guard_mode_check is False


@pytest.mark.slow
def test_functions_that_share_a_scan_do_not_share_its_storage():
    functions = []
    for _ in range(2):
        x, result, _ = loop(lambda a, b: tt.tanh(a + b))
        functions.append(theano.function([x], result, mode=theano.Mode("py", None)))
    scans = [node.op for f in functions for node in f.maker.fgraph.apply_nodes if hasattr(node.op, "mintaps")]
    assert scans[0] is scans[1]
    numbers = [np.full((200, 3), value) for value in (0.1, -0.3)]
    expected = [f(value) for f, value in zip(functions, numbers, strict=True)]

    def run(f, value, result):
        return all(np.array_equal(f(value), result) for _ in range(20))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            assert all(pool.map(run, functions, numbers, expected))
    finally:
        sys.setswitchinterval(interval)


def test_inner_graphs_with_test_values_are_left_alone():
    with theano.change_flags(compute_test_value="ignore"):
        assert composite(3.0) is not composite(3.0)
    assert ("theano.scalar.basic.Composite", "carries test values in its inner graph") in optdb.cache.stats().uncached


def test_unhashable_props_are_built_as_before():
    class Listing(Op):
        __props__ = ("items",)

        def __init__(self, items):
            self.items = items

    one, other = Listing([1]), Listing([1])
    assert one is not other
    [(_, reason)] = [key for key in optdb.cache.stats().uncached if "Listing" in key[0]]
    assert reason == "prop 'items' is a list, which can change"
    assert "Listing" in str(optdb.cache.stats())


def test_undeclared_props_are_built_as_before():
    class Undeclared(Op):
        pass

    assert Undeclared() is not Undeclared()
    assert [reason for name, reason in optdb.cache.stats().uncached if "Undeclared" in name] == ["has no __props__"]


def test_props_that_leave_something_out_are_differing():
    class Forgetful(Op):
        __props__ = ("value",)

        def __init__(self, value, verbose):
            self.value = value
            self.verbose = verbose

    assert Forgetful(1, True) is not Forgetful(1, False)
    assert Forgetful(1, True) == Forgetful(1, False)
    differing = [attributes for name, attributes in optdb.cache.stats().kept_apart if "Forgetful" in name]
    assert differing == [("verbose",)]


@pytest.mark.usefixtures("alone")
def test_ops_that_nobody_uses_go():
    ref = weakref.ref(Scale(12345))
    gc.collect()
    assert ref() is None
    op = Scale(12345)
    assert Scale(12345) is op


def test_a_graph_computes_the_same():
    x = tt.dvector()
    f = theano.function([x], Scale(3)(x) + tt.exp(x).sum(), mode=theano.Mode("py", "fast_run"))
    np.testing.assert_allclose(f([1.0, 2.0]), np.array([3.0, 6.0]) + np.exp([1.0, 2.0]).sum())


def test_changing_a_prop_of_a_shared_op_is_reported():
    op = Scale(77)
    op.factor = 77
    op.remark = "not a prop"
    assert Scale(77) is op
    with pytest.warns(SharedOpChanged, match=r"Scale: prop 'factor' .* from 77 to 78") as warned:
        op.factor = 78
    assert "HINT" in str(warned[0].message)
    assert op.factor == 78
    assert hash(op) == hash(Scale(78))
    assert op == Scale(78)
    assert Scale(77).factor == 77
    op.factor = 79


def test_changing_what_the_props_leave_out_is_reported():
    op = tt.subtensor.AdvancedSubtensor1(sparse_grad=True)
    with pytest.warns(SharedOpChanged, match=r"AdvancedSubtensor1: attribute 'sparse_grad' .* from True to False"):
        op.sparse_grad = False
    assert tt.subtensor.AdvancedSubtensor1(sparse_grad=True).sparse_grad


def test_classes_with_metaclasses_of_their_own():
    """Run the code in a separate process: the classes that it defines would persist in this one."""
    code = """
        from abc import ABCMeta
        import optdb
        from theano.gof import Op
        from theano.gof.utils import MetaObject

        def op_class(metaclass):
            class Made(Op, metaclass=metaclass):
                __props__ = ("value",)

                def __init__(self, value):
                    self.value = value

            return Made

        class Before(MetaObject): pass

        with optdb.cache.install():
            class Within(MetaObject): pass
            class OfOps(type(Op)): pass
            class OfBoth(MetaObject, ABCMeta): pass

            metaclasses = [Before, Within, OfOps, OfBoth]
            made = [op_class(metaclass) for metaclass in metaclasses]
            for cls, metaclass in zip(made, metaclasses):
                assert type(cls) is metaclass
                assert cls(1) is cls(1) is not cls(2)
        for cls in [*made, *map(op_class, metaclasses), op_class(MetaObject)]:
            assert cls(1) is not cls(1)
            assert cls(1) == cls(1)
        assert {metaclass.__bases__[0] for metaclass in metaclasses} == {MetaObject}
        print("done")
    """
    assert output(code) == "done"


def test_a_class_made_while_the_cache_is_installed_is_left_as_theano_has_it():
    class Child(Scale):
        pass

    assert Child(3) is Child(3)
    optdb.cache.uninstall()
    assert type(Child) is MetaObject
    assert Child(3) is not Child(3)


@pytest.mark.slow
def test_nothing_is_watched_in_production():
    code = """
        import optdb
        from theano.gof.op import PureOp

        with optdb.cache.install():
            print("__setattr__" in vars(PureOp), "__setattr__" in vars(optdb.cache.SingletonOp))
    """
    assert output(code) == "True True"
    assert python("-O", "-c", textwrap.dedent(code)).stdout.strip() == "False False"


def test_uninstall_puts_everything_back():
    op = Scale(5)
    optdb.cache.uninstall()
    optdb.disable()
    assert {type(cls) for cls in op_classes()} == {type, MetaObject, SingletonMeta}
    assert "__setattr__" not in vars(PureOp)
    assert not any(
        hasattr(vars(cls).get("__eq__"), "quick") for cls in op_classes() if not issubclass(cls, SingletonOp)
    )
    assert Scale(5) is not op
    assert Scale(5) == op
    op.factor = 6
    assert Scale(6) == op
    assert not optdb.cache.stats().installed


def test_installing_twice_and_leaving_once():
    with optdb.cache.install():
        op = Scale(9)
    assert optdb.cache.is_installed()
    assert Scale(9) is op


def test_the_engine_and_the_cache_leave_in_any_order():
    x = tt.dmatrix()
    with optdb.enable():
        theano.function([x], tt.exp(x) + 1, mode=theano.Mode("py", "fast_run"))
        optdb.cache.uninstall()
        theano.function([x], tt.exp(x) + 1, mode=theano.Mode("py", "fast_run"))
    assert not hasattr(Sum.__eq__, "quick")
    optdb.cache.install()
    with optdb.enable():
        theano.function([x], tt.exp(x) + 1, mode=theano.Mode("py", "fast_run"))
    assert hasattr(Sum.__eq__, "quick")
    assert Elemwise(ts.add) is tt.add


def test_creation_traces_end_at_the_users_line():
    x = tt.dvector()
    y = tt.exp(x)
    for variable in (x, y):
        file, _, _, line = variable.tag.trace[-1][-1]
        assert file == __file__, variable.tag.trace
        assert line.strip() in ("x = tt.dvector()", "y = tt.exp(x)")


def test_hashes_are_computed_once():
    class Counting(Op):
        __props__ = ("value",)
        asked = 0

        def __init__(self, value):
            self.value = value

        def __eq__(self, other):
            return type(self) is type(other) and self.value == other.value

        def __hash__(self):
            Counting.asked += 1
            return hash((Counting, self.value))

    op = Counting(1)
    assert hash(op) == hash(op) == hash((Counting, 1))
    assert Counting.asked == 1
    assert op == op


@pytest.mark.slow
def test_the_flag():
    code = """
        import optdb, theano.tensor as tt, theano.scalar as ts
        print(optdb.cache.is_installed(), tt.elemwise.Elemwise(ts.mul) is tt.mul)
    """
    assert output(code, flags="optdb.op_cache=True") == "True True"
    assert output(code) == "False False"


@pytest.mark.slow
def test_the_cache_first():
    assert output("import optdb.cache; print(optdb.cache.is_installed())", flags="optdb.op_cache=True") == "True"
