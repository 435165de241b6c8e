"""optdb's queries of Theano's databases give the same results as Theano's own queries."""

from __future__ import annotations

import pytest
import theano
import theano.tensor as tt
from theano.gof import EquilibriumDB, Query, local_optimizer
from theano.gof.opt import EquilibriumOptimizer, MergeOptimizer
from theano.gof.optdb import DB, LocalGroupDB

from optdb.host.api.databases import compile_db, visiting_members_once

_stock = EquilibriumDB.query
_query = visiting_members_once(_stock)

QUERIES = [
    Query(["fast_run"]),
    Query(["fast_compile"]),
    Query(["fast_run", "fast_compile"], exclude=["local_mul_zero", "gpu"]),
    Query(["fast_run", "stabilize"], require=["fast_compile"], exclude=["inplace"]),
    Query(["no such tag"]),
]


def attributes(optimizer: EquilibriumOptimizer):
    map_ = optimizer.local_optimizers_map
    return {**vars(optimizer), "local_optimizers_map": dict(map_)}, list(map_)


def same(db, *tags, **kwtags):
    assert attributes(_query(db, *tags, **kwtags)) == attributes(_stock(db, *tags, **kwtags))


@pytest.mark.parametrize("query", QUERIES, ids=str)
@pytest.mark.parametrize("phase", ["canonicalize", "stabilize", "specialize", "uncanonicalize"])
def test_the_phases_of_theano(phase, query):
    same(compile_db()[phase], query)
    same(compile_db()[phase], query)


def rewriter(*tracks):
    return local_optimizer(list(tracks) or None)(lambda node: None)


@pytest.fixture
def db():
    db = EquilibriumDB()
    db.register("all", rewriter(), "fast_run")
    db.register("exp", rewriter(tt.exp, theano.tensor.elemwise.DimShuffle), "fast_run")
    db.register("merge", MergeOptimizer(), "fast_run", cleanup=True)
    db.register("last", MergeOptimizer(), "fast_run", final_opt=True)
    same(db, Query(["fast_run"]))
    return db


def test_what_is_registered_late_takes_part(db):
    db.register("late", rewriter(tt.exp), "fast_run")
    same(db, Query(["fast_run"]))
    db.remove_tags("exp", "fast_run")
    same(db, Query(["fast_run"]))


def test_tracks_that_have_changed_count(db):
    db["exp"].tracks().append(tt.sin)
    same(db, Query(["fast_run"]))
    assert tt.sin in _query(db, Query(["fast_run"])).local_optimizers_map


def test_optimizers_are_independent(db):
    first = _query(db, Query(["fast_run"]))
    next(iter(first.local_optimizers_map.values())).clear()
    first.local_optimizers_map[tt.cos] = []
    first.local_optimizers_all.clear()
    same(db, Query(["fast_run"]))


def test_queries_by_strings(db):
    same(db, "+fast_run", "-exp")
    with pytest.raises(TypeError):
        _query(db, Query(["fast_run"]), "+fast_run")


def test_a_database_in_a_database(db):
    group = LocalGroupDB()
    group.register("sin", rewriter(tt.sin), "fast_run")
    db.register("group", group, "fast_run")
    assert any(isinstance(member, DB) for member in db.__db__["fast_run"])
    members = _query(db, Query(["fast_run"])).local_optimizers_map
    assert len(members[tt.sin]) == 1
