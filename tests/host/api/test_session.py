"""Some settings apply only during an optimization, and are restored even if it fails."""

from __future__ import annotations

import gc
import threading

import pytest
import theano.tensor as tt
from theano.gof import FunctionGraph

from optdb import collector as collecting
from optdb.collector import MOST_PROMOTED, UNASKED
from optdb.host.api.identity import numbers
from optdb.host.api.session import optimizing
from tests.processes import output

PATCHED = [(FunctionGraph, "execute_callbacks"), (FunctionGraph, "__import__")]


def state():
    return gc.isenabled(), numbers.users, len(numbers.of), [vars(owner)[name] for owner, name in PATCHED]


@pytest.fixture(autouse=True)
def nothing_promoted_before(monkeypatch):
    monkeypatch.setattr(collecting, "MOST_PROMOTED", MOST_PROMOTED)
    monkeypatch.setattr(collecting, "_promotion", collecting._Promotion())


@pytest.fixture(autouse=True)
def same_afterwards():
    before = state()
    yield
    assert state() == before


@pytest.fixture(params=[True, False], ids=["gc on", "gc off"])
def collector(request):
    """Run the test once with Python's garbage collector enabled, and once with the collector disabled."""
    was_enabled = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if was_enabled else gc.disable)()


def test_the_collector_is_paused_and_put_back(collector):
    with optimizing():
        assert not gc.isenabled()
    assert gc.isenabled() == collector


def young_ids():
    return set(map(id, gc.get_objects(generation=0)))


@pytest.mark.skipif(gc.get_freeze_count() > 0, reason="this Python freezes objects when it starts")
def test_what_grew_is_taken_for_old():
    gc.collect()
    with optimizing():
        grown = [[] for _ in range(3)]
    assert young_ids().isdisjoint(map(id, grown))
    assert {id(x) for x in gc.get_objects(generation=2)}.issuperset(map(id, grown))


@pytest.mark.skipif(gc.get_freeze_count() > 0, reason="this Python freezes objects when it starts")
def test_garbage_among_it_is_collected_in_time():
    # Garbage is collected once half of all objects are new, which happens soon in a process without other tests'
    # objects.
    code = """
        import gc, weakref
        import optdb, theano
        from optdb.host.api.session import optimizing
        from optdb.collector import MOST_PROMOTED

        class Cycle:
            def __init__(self):
                self.itself = self

        first = weakref.ref(Cycle())
        sessions = 0
        while first() is not None and sessions < 2 + 2 * max(MOST_PROMOTED, len(gc.get_objects())) // 50_000:
            sessions += 1
            with optimizing():
                for _ in range(50_000):
                    Cycle()
        print(first() is None)
        """
    assert output(code) == "True"


@pytest.mark.skipif(gc.get_freeze_count() > 0, reason="this Python freezes objects when it starts")
def test_a_large_heap_is_not_listed_each_time(monkeypatch):
    listed = []
    monkeypatch.setattr(gc, "get_objects", lambda generation: listed.append(generation) or range(10 * MOST_PROMOTED))
    gc.collect()
    grown = []
    for _ in range(2 * MOST_PROMOTED // 50_000):
        with optimizing():
            grown += [[] for _ in range(50_000)]
    assert listed == [2]


def test_what_others_have_frozen_stays_so():
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with optimizing():
            grown = [[]]
        assert id(grown[0]) in young_ids()
        assert gc.get_freeze_count() >= frozen - 10  # except objects that were freed since
    finally:
        gc.unfreeze()


def test_frozen_objects_are_not_counted_each_time(monkeypatch):
    answers = [7, 0]
    monkeypatch.setattr(gc, "get_freeze_count", lambda: answers.pop(0) if answers else 0)
    for _ in range(1 + UNASKED):
        with optimizing():
            pass
        assert answers == [0]
    with optimizing():
        grown = [[]]
    assert not answers
    assert id(grown[0]) not in young_ids()


def test_an_exception_ends_it_as_well(collector):
    before = state()
    with pytest.raises(KeyError), optimizing():
        hash(tt.exp)
        raise KeyError
    assert state() == before


def test_it_nests(collector):
    before = state()
    with optimizing():
        inside = state()
        with pytest.raises(ValueError, match="inner"), optimizing():
            raise ValueError("inner")
        assert state()[0] is False
        assert state()[3] == inside[3], "the outer one is still on"
        assert numbers.users == 1
        hash(tt.exp)
        assert numbers.of
    assert state() == before


def test_who_turns_the_collector_on_meanwhile_is_not_contradicted_for_long():
    was_enabled = gc.isenabled()
    with optimizing():
        gc.enable()
    assert gc.isenabled() or not was_enabled


def test_threads_share_it(collector):
    """The first thread that enters changes the settings, and the last one that exits restores them."""
    before = state()
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))
    seen = {}

    def first():
        with optimizing():
            first_is_in.set()
            second_is_in.wait(10)
        first_is_out.set()

    def second():
        first_is_in.wait(10)
        with optimizing():
            second_is_in.set()
            first_is_out.wait(10)
            seen["after the first one left"] = gc.isenabled(), numbers.users
            seen["patched"] = all(vars(owner)[name] is not stock for (owner, name), stock in zip(PATCHED, before[3]))

    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert seen == {"after the first one left": (False, 1), "patched": True}
    assert state() == before


def test_many_threads_at_once():
    errors = []

    def work(k):
        try:
            for _ in range(30):
                with optimizing():
                    x = tt.dvector("x")
                    assert tt.exp == tt.exp
                    fgraph = FunctionGraph([x], [tt.exp(tt.sin(x) * x)], clone=False)
                    fgraph.replace(fgraph.outputs[0], tt.cos(x))
                    fgraph.check_integrity()
        except Exception as error:  # passed to the main thread
            errors.append((k, error))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
