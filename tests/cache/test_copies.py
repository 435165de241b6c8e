"""Copies, pickles and threads give the shared op, or an equal one."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
import theano
import theano.scalar as ts
import theano.tensor as tt
from theano.gof import Op
from theano.tensor.elemwise import DimShuffle, Elemwise, Sum

import optdb
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


COPIES = [copy.copy, copy.deepcopy, *[lambda op, p=p: pickle.loads(pickle.dumps(op, p)) for p in range(2, 6)]]


@pytest.mark.parametrize("make_copy", COPIES)
def test_copies_are_equal(make_copy):
    with optdb.cache.install():
        for op in ops():
            other = make_copy(op)
            assert type(other) is type(op)
            assert other == op
            assert hash(other) == hash(op)
            assert (other != op) is False


def test_a_copy_may_be_changed():
    with optdb.cache.install():
        op = copy.copy(Plain(3))
        op.value = 4
        assert op != Plain(3)
        assert op == Plain(4)
        assert Plain(3).value == 3


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
