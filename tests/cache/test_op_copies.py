"""An op that is copied, unpickled or made in another thread is the shared op, or equals it."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
import theano
import theano.misc.pkl_utils
import theano.scalar as ts
import theano.tensor as tt
from theano.gof import Op
from theano.scan_module.scan_op import Scan
from theano.tensor.elemwise import DimShuffle, Elemwise, Sum
from theano.tensor.subtensor import AdvancedSubtensor1

import optdb
import optdb.cache.construct
from optdb.cache import SharedOpChanged, SingletonOp
from tests.processes import output


class Plain(Op):
    __props__ = ("value",)

    def __init__(self, value):
        self.value = value


class Single(SingletonOp):
    __props__ = ("value", "other")

    def __init__(self, value=1, other=None):
        self.value = value
        self.other = other


class Reduced(Op):
    """An op whose unpickling calls its constructor."""

    __props__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        return Reduced, (self.value,)


@theano.compile.ops.as_op(itypes=[tt.dvector], otypes=[tt.dvector])
def doubled(x):
    return 2 * x


class SingleChild(Single):
    pass


class Empty(SingletonOp):
    __props__ = ()


def ops():
    x = ts.float64()
    return [
        tt.add,
        Elemwise(ts.mul, {0: 0}),
        DimShuffle((False,), (0, "x")),
        Sum(axis=(0,)),
        ts.Composite([x], [ts.exp(x) + 1.0]),
        tt.Subtensor((slice(None, ts.int64, None),)),
        Plain(3),
    ]


def scan():
    x = tt.dvector()
    return theano.scan(lambda v: tt.exp(v) + 1, sequences=[x])[0].owner.op


PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
COPIES = [copy.copy, copy.deepcopy, *[lambda op, p=p: pickle.loads(pickle.dumps(op, p)) for p in PROTOCOLS]]


@pytest.mark.parametrize("make_copy", COPIES)
def test_copies_are_the_one_op(make_copy):
    with optdb.cache.install():
        for op in [*ops(), scan()]:
            op = optdb.cache.construct.store.share(op)
            assert make_copy(op) is op


@pytest.mark.parametrize("make_copy", COPIES)
def test_copies_of_ops_that_cannot_be_shared_are_copies(make_copy):
    with optdb.cache.install():
        op = Plain([1, 2])
        other = make_copy(op)
        assert other is not op
        assert other.value == [1, 2]


def test_a_deep_copy_of_an_op_that_cannot_be_shared_is_deep():
    with optdb.cache.install():
        op = Plain([[1]])
        copy.deepcopy(op).value[0].append(2)
        assert op.value == [[1]]


def test_an_op_that_stands_for_a_copy_refuses_to_change():
    with optdb.cache.install():
        op = Plain(3)
        for make_copy in (copy.copy, copy.deepcopy):
            other = make_copy(op)
            other.value = 3  # the same value as before
            with pytest.raises(SharedOpChanged, match=r"Plain: prop 'value'[^$]*HINT"):
                other.value = 4
        assert op.value == 3
        assert Plain(3) is op


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (lambda: AdvancedSubtensor1(sparse_grad=False), "sparse_grad", True),
        (lambda: tt.exp, "destroy_map", {0: [0]}),
        (lambda: tt.exp, "scalar_op", ts.log),
        (scan, "info", {}),
        (scan, "truncate_gradient", 3),
        (scan, "outputs", []),
        (lambda: ops()[4], "outputs", []),
    ],
)
@pytest.mark.parametrize("make_copy", [copy.copy, copy.deepcopy])
def test_all_that_defines_an_op_that_stands_for_a_copy_refuses_to_change(make, name, value, make_copy):
    with optdb.cache.install():
        op = optdb.cache.construct.store.share(make())
        before = getattr(op, name, None)
        other = make_copy(op)
        with pytest.raises(SharedOpChanged, match=name):
            setattr(other, name, value)
        assert getattr(op, name, None) is before
        if before is not None:
            with pytest.raises(SharedOpChanged, match=f"{name}.* to nothing"):
                delattr(other, name)


def test_what_an_op_keeps_for_itself_may_change():
    with optdb.cache.install():
        op = Plain(31)
        other = copy.copy(op)
        other.compiled = object()
        del other.compiled
        assert Plain(31) is op


def test_an_unshared_copy_may_be_changed():
    """A node that is made with an unshared copy gets the shared op instead of the copy."""
    with optdb.cache.install():
        op = Plain(3)
        other = optdb.cache.unshared_copy(op)
        assert other is not op and other == op
        other.value = 4
        assert op.value == 3
        four = Plain(4)
        assert theano.Apply(other, [], []).op is four
        assert other == four


def test_ops_that_theano_derives_from_others_are_single():
    """`make_node` of a reduction copies its op and sets the copy's dtype; equal copies are one object."""
    x = tt.fmatrix()
    with optdb.cache.install():
        op = Sum(axis=(0,))
        first, second = op(x).owner.op, op(x).owner.op
        assert first is second
        assert op.dtype is None
        assert first.dtype == "float32"
        assert tt.max(x, axis=-1).owner.op is tt.max(x, axis=-1).owner.op


@pytest.mark.parametrize("make", [lambda: Reduced(3), lambda: doubled], ids=["constructor", "as_op"])
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_ops_that_say_how_they_are_pickled(make, protocol):
    with optdb.cache.install():
        op = optdb.cache.construct.store.share(make())
        assert pickle.loads(pickle.dumps(op, protocol)) is op
        assert copy.copy(op) == op
        assert optdb.cache.unshared_copy(op) is not op
        assert vars(optdb.cache.unshared_copy(op)) == vars(op)


def test_pickles_made_without_the_cache_give_the_one_op_in_a_graph():
    x = tt.dmatrix("x")
    text = pickle.dumps((x, [Sum(axis=(0,))(x), tt.exp(x), x.dimshuffle(1, 0)], Sum(axis=(0,))))
    with optdb.cache.install():
        x, outputs, op = pickle.loads(text)
        assert [out.owner.op for out in outputs] == [Sum(axis=(0,))(x).owner.op, tt.exp, x.T.owner.op]
        assert outputs[0].owner.op is Sum(axis=(0,))(x).owner.op
        assert outputs[1].owner.op is tt.exp
        assert outputs[2].owner.op is x.T.owner.op
        assert op == Sum(axis=(0,))
        assert copy.copy(op) is Sum(axis=(0,))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_graphs_that_are_copied_and_pickled_have_the_same_ops(protocol):
    x = tt.dmatrix("x")
    with optdb.cache.install():
        outputs = [tt.exp(x).sum(axis=0), x.T, theano.scan(lambda v: v * 2, sequences=[x])[0]]
        for again in (pickle.loads(pickle.dumps(outputs, protocol)), copy.deepcopy(outputs)):
            for old, new in zip(outputs, again, strict=True):
                assert new.owner is not old.owner
                assert new.owner.op is old.owner.op


def test_functions_that_are_pickled_by_other_means_have_the_same_ops(tmp_path):
    cloudpickle = pytest.importorskip("cloudpickle")
    with optdb.cache.install():
        for op in [*ops(), scan()]:
            op = optdb.cache.construct.store.share(op)
            assert pickle.loads(cloudpickle.dumps(op)) is op
            with (tmp_path / "dumped.zip").open("wb") as file:
                theano.misc.pkl_utils.dump(op, file)
            with (tmp_path / "dumped.zip").open("rb") as file:
                assert theano.misc.pkl_utils.load(file) is op


@pytest.mark.slow
@pytest.mark.parametrize("written", [True, False])
def test_pickles_go_between_programs_with_and_without_the_cache(written, tmp_path):
    path = tmp_path / "op.pickle"
    names = "theano.tensor.Sum"
    write = f"""
        import optdb, pickle, theano.tensor as tt, theano
        from theano.tensor.elemwise import DimShuffle, Sum
        x = tt.dmatrix("x")
        f = theano.function([x], tt.exp(x).sum(axis=0), mode=theano.Mode("py", "fast_run"))
        pickle.dump((Sum(axis=(0,)), DimShuffle((False,), (0, "x")), tt.exp, f), open({str(path)!r}, "wb"))
        print("written")
    """
    read = f"""
        import optdb, pickle, theano.tensor as tt
        from theano.tensor.elemwise import DimShuffle, Sum
        one, other, exp, f = pickle.load(open({str(path)!r}, "rb"))
        print(one == Sum(axis=(0,)), other == DimShuffle((False,), (0, "x")), exp == tt.exp)
        print(hash(one) == hash(Sum(axis=(0,))), f([[0.0, 0.0]]).tolist())
    """
    with_cache, without = "optdb.op_cache=True", "optdb.op_cache=False"
    assert output(write, flags=with_cache if written else without) == "written"
    for flags in (with_cache, without):
        assert output(read, flags=flags) == "True True True\nTrue [1.0, 1.0]", names
    assert b"optdb.cache" not in path.read_bytes()


def test_singleton_ops():
    assert Single() is Single(1) is Single(value=1, other=None)
    assert Single(2) is not Single(1)
    assert SingleChild() is SingleChild()
    assert SingleChild() is not Single()
    assert SingleChild() != Single()
    assert Empty() is Empty()


@pytest.mark.parametrize("make_copy", COPIES)
@pytest.mark.parametrize("make", [Single, lambda: Single(2, (1, "a")), SingleChild, Empty])
def test_singleton_ops_stay_single(make, make_copy):
    op = make()
    assert make_copy(op) is op


def test_a_pickle_of_a_singleton_op_that_is_not_there_any_more():
    op = Single(4711)
    text = pickle.dumps(op)
    del op
    again = pickle.loads(text)
    assert again.value == 4711
    assert Single(4711) is again


def test_singleton_ops_outlive_the_cache():
    before = Single(8)
    with optdb.cache.install():
        during = Single(9)
        assert Single(8) is before
    assert Single(8) is before
    assert Single(9) is during
    with optdb.cache.install():
        assert Single(9) is during


def test_changing_a_singleton_op_is_reported():
    op = Single(10)
    with pytest.warns(SharedOpChanged, match=r"Single: prop 'value'"):
        op.value = 11
    assert Single(10).value == 10
    assert Single(11).value == 11


def test_singleton_ops_in_a_graph():
    class Twice(SingletonOp):
        __props__ = ()

        def make_node(self, x):
            return theano.Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs):
            outputs[0][0] = 2 * inputs[0]

    x = tt.dvector()
    f = theano.function([x], Twice()(x) + Twice()(x), mode=theano.Mode("py", "fast_run"))
    assert f([1.0]).tolist() == [4.0]
    assert sum(isinstance(node.op, Twice) for node in f.maker.fgraph.apply_nodes) == 1


def test_threads_get_one_op():
    with optdb.cache.install():
        for round_ in range(20):
            barrier = threading.Barrier(8)
            found = []

            def make(value=round_, barrier=barrier, found=found):
                barrier.wait()
                for number in range(20):
                    found.append((number, Plain((value, number)), DimShuffle((True,) * 3, (number % 3,))))

            threads = [threading.Thread(target=make) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for number in range(20):
                assert len({id(op) for n, op, _ in found if n == number}) == 1
            assert len({id(op) for n, _, op in found if n % 3 == 1}) == 1


def test_threads_that_come_and_go():
    with optdb.cache.install():
        stop = threading.Event()
        failures = []

        def churn():
            try:
                while not stop.is_set():
                    for number in range(5):
                        op = Plain(number)
                        assert op.value == number
                        assert Plain(number) is op
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=churn) for _ in range(4)]
        for thread in threads:
            thread.start()
        stop.wait(0.5)
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures


def test_a_scan_that_stands_for_copies_can_be_printed():
    """Printing a Scan without the attribute `destroy_map` works, although Theano then sets this attribute."""
    x = tt.dvector("x")
    with optdb.cache.install():
        states, _ = theano.scan(lambda row: row * 2, sequences=x)
        owners = [var.owner for var in theano.gof.graph.ancestors([states]) if var.owner is not None]
        op = next(node.op for node in owners if isinstance(node.op, Scan))
        vars(op).pop("destroy_map", None)
        copied = copy.copy(op)
        assert copied is op
        assert "for{" in str(op)
