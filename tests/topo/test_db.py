"""TopoOptDB supports names, tags, positions and queries, like Theano's databases."""

from __future__ import annotations

import pytest
import theano
import theano.tensor as tt
from theano.gof import DB, EquilibriumDB, Query, SequenceDB, local_optimizer
from theano.gof.opt import MergeOptimizer, Optimizer

import optdb
from optdb.host.api.rewriters import FunctionNodeRewriter
from optdb.lifters import op_lifter
from optdb.topo import TopoOptDB, TopoRewriter, collect, register_topo, topo_db
from tests.topo.graphs import STOCK, graph_of, ops, rewriter, unchanged


def named(name, tracks=None):
    def f(fgraph, node):
        return None

    f.__name__ = name
    return FunctionNodeRewriter(f, tracks)


class GraphRewriter(Optimizer):
    """A rewriter that appends its name to a list whenever it is called."""

    def __init__(self, calls, name):
        self.calls = calls
        self.called = name

    def apply(self, fgraph):
        self.calls.append(self.called)


def names(topo):
    return [one.name for one in topo.get_local_optimizers()]


@pytest.fixture
def db():
    db = TopoOptDB()
    db.register("one", named("f1"), "fast_run", "fast_compile")
    db.register("two", named("f2"), "fast_run", "arithmetic")
    db.register("three", named("f3"), "arithmetic")
    return db


# -- names, tags and queries


@pytest.mark.parametrize(
    "query, expected",
    [
        (["+fast_run"], ["one", "two"]),
        (["+fast_run", "+arithmetic"], ["one", "two", "three"]),
        (["+fast_run", "-arithmetic"], ["one"]),
        (["+fast_run", "-two"], ["one"]),
        (["+fast_run", "&arithmetic"], ["two"]),
        (["+three"], ["three"]),
        (["+nothing"], []),
        (["+FunctionNodeRewriter"], ["one", "two", "three"]),
    ],
    ids=str,
)
def test_strings_select_as_in_theano(db, query, expected):
    assert names(db.query(*query)) == expected
    include, require, exclude = ([tag[1:] for tag in query if tag[0] == sign] for sign in "+&-")
    assert names(db.query(Query(include, require, exclude))) == expected


def test_a_query_is_extended_as_in_theano(db):
    query = Query(["fast_compile"])
    assert names(db.query(query)) == ["one"]
    assert names(db.query(query.including("arithmetic"))) == ["one", "two", "three"]
    assert names(db.query(query.including("arithmetic").excluding("fast_run"))) == ["three"]
    assert names(db.query(query.including("arithmetic").requiring("fast_run"))) == ["one", "two"]


def test_wrong_queries_are_errors_as_in_theano(db):
    with pytest.raises(ValueError, match="must start with"):
        db.query("fast_run")
    with pytest.raises(TypeError):
        db.query(Query(["fast_run"]), "+more")


def test_it_answers_with_a_rewriter(db):
    topo = db.query("+fast_run")
    assert isinstance(topo, TopoRewriter)
    assert topo.direction == "out_to_in"
    assert topo.max_use_ratio == theano.config.optdb.max_use_ratio
    assert db.query("+fast_run") is not topo


def test_its_parameters_are_the_rewriters():
    db = TopoOptDB(direction="in_to_out", max_use_ratio=2.5)
    topo = db.query("+fast_run")
    assert (topo.direction, topo.max_use_ratio) == ("in_to_out", 2.5)
    with pytest.raises(ValueError, match="direction"):
        TopoOptDB(direction="up")


def test_names_are_taken_once(db):
    with pytest.raises(ValueError, match="name"):
        db.register("one", named("other"))
    with pytest.raises(ValueError, match="tag"):
        db.register("fast_run", named("other"))
    with pytest.raises(ValueError, match="collides"):
        db.register("four", named("other"), "two")
    with pytest.raises(TypeError):
        db.register("five", lambda fgraph, node: None)


def test_lookups(db):
    assert db["one"].name == "one"
    assert "one" in db
    assert "arithmetic" in db
    assert "nobody" not in db
    with pytest.raises(ValueError, match="More than one"):
        db["fast_run"]
    with pytest.raises(KeyError):
        db["nobody"]


def test_tags_may_be_given_and_taken_later(db):
    db.add_tags("three", "fast_run")
    assert names(db.query("+fast_run")) == ["one", "two", "three"]
    db.remove_tags("one", "fast_run")
    assert names(db.query("+fast_run")) == ["two", "three"]


def test_late_registration_takes_part(db):
    db.register("late", named("late"), "fast_run")
    assert names(db.query("+fast_run")) == ["one", "two", "late"]


def test_its_own_name_is_a_tag_of_its_members():
    """As in EquilibriumDB, members that are registered after the database has got its name have this name as a tag."""
    outer, db = SequenceDB(), TopoOptDB()
    outer.register("inner", db, 1, "fast_run")
    db.register("by_name", named("f"), "special")
    db.register("by_tag_only", named("g"), "special", use_db_name_as_tag=False)
    assert names(db.query("+inner")) == ["by_name"]
    assert names(db.query("+special", "-inner")) == ["by_tag_only"]


# -- positions


def test_positions_decide_the_order():
    db = TopoOptDB()
    db.register("b", named("b"), "x", position=2)
    db.register("c", named("c"), "x")
    db.register("a", named("a"), "x", position=-1.5)
    db.register("d", named("d"), "x", position="last")
    assert names(db.query("+x")) == ["a", "b", "c", "d"]


def test_a_cutoff_leaves_out_what_stands_behind_it():
    db = TopoOptDB()
    for position in (1, 2, 3):
        db.register(f"at{position}", named("f"), "x", position=position)
    assert names(db.query("+x", position_cutoff=3)) == ["at1", "at2"]
    assert names(db.query(Query(["x"], position_cutoff=2))) == ["at1"]
    with theano.change_flags(**{"optdb.position_cutoff": 1.5}):
        assert names(db.query("+x")) == ["at1"]


@pytest.mark.parametrize("position", ["first", None, True, [1]], ids=str)
def test_a_position_is_a_number(position):
    db = TopoOptDB()
    with pytest.raises(TypeError, match="position of 'a'"):
        db.register("a", named("a"), position=position)
    assert "a" not in db


# -- other databases, and graph rewriters


def count(tracks, calls, name):
    @rewriter(tracks)
    def counting(fgraph, node):
        calls.append(name)

    return counting


def test_databases_nest():
    """A query of the outer database also queries the inner one, whose result runs as a graph rewriter."""
    inner, outer, calls = TopoOptDB(), TopoOptDB(), []
    inner.register("in", count([tt.exp], calls, "in"), "fast_run")
    inner.register("not_in", count([tt.exp], calls, "not_in"), "slow")
    outer.register("inner", inner, "fast_run")
    outer.register("out", count([tt.exp], calls, "out"), "fast_run")
    topo = outer.query("+fast_run")
    assert names(topo) == ["out"]
    (nested,) = topo.global_optimizers
    assert isinstance(nested, TopoRewriter)
    assert nested.name == "inner"
    topo.optimize(graph_of([x := tt.dvector("x")], tt.exp(x)))
    assert "in" in calls
    assert "not_in" not in calls
    assert calls.index("in") < calls.index("out")


def test_a_subquery_is_the_inner_ones():
    inner, outer = TopoOptDB(), TopoOptDB()
    inner.register("one", named("f"), "fast_run")
    inner.register("two", named("g"), "slow")
    outer.register("inner", inner, "fast_run")
    (nested,) = outer.query("+fast_run", inner=Query(["slow"])).global_optimizers
    assert names(nested) == ["two"]
    (nested,) = outer.query(Query(["fast_run"], subquery={"inner": Query(["one"])})).global_optimizers
    assert names(nested) == ["one"]


def test_theanos_databases_may_be_in_it_and_around_it():
    equilibrium, topo, sequence = EquilibriumDB(), TopoOptDB(), SequenceDB()
    equilibrium.register("e", named("e"), "fast_run")
    topo.register("equilibrium", equilibrium, "fast_run")
    sequence.register("topo", topo, 1, "fast_run")
    (member,) = sequence.query("+fast_run")
    assert isinstance(member, TopoRewriter)
    assert [type(one).__name__ for one in member.global_optimizers] == ["EquilibriumOptimizer"]
    assert isinstance(topo, DB)


def test_final_and_cleanup_rewriters_keep_their_turns():
    db, calls = TopoOptDB(), []
    db.register("final", GraphRewriter(calls, "final"), "fast_run", final_opt=True)
    db.register("global", GraphRewriter(calls, "global"), "fast_run")
    db.register("cleanup", GraphRewriter(calls, "cleanup"), "fast_run", cleanup=True)

    @rewriter([tt.exp])
    def change(fgraph, node):
        calls.append("change")
        return [tt.log(node.inputs[0])]

    db.register("change", change, "fast_run")
    fgraph = graph_of([x := tt.dvector("x")], tt.exp(x))
    db.query("+fast_run").optimize(fgraph)
    assert ops(fgraph) == [tt.log]
    assert calls == [
        *("cleanup", "global", "cleanup", "change", "cleanup", "final", "cleanup"),
        *("cleanup", "global", "cleanup", "final", "cleanup"),
    ]


def test_final_and_cleanup_are_for_graph_rewriters():
    db = TopoOptDB()
    with pytest.raises(ValueError, match="both a final and a cleanup"):
        db.register("a", MergeOptimizer(), final_opt=True, cleanup=True)
    for where in ("final_opt", "cleanup"):
        with pytest.raises(TypeError, match="only graph rewriters"):
            db.register("b", named("b"), **{where: True})
    assert "a" not in db
    assert "b" not in db


# -- in theano.compile.optdb, through theano.function


@pytest.fixture
def registered():
    """Add a database to Theano's own, and remove it afterwards."""
    db = TopoOptDB()
    with unchanged(theano.compile.optdb):
        theano.compile.optdb.register("topo_of_the_test", db, 2.01, "fast_run")
        yield db


@pytest.mark.parametrize("mode", [STOCK, optdb.mode(STOCK)], ids=["stock", "engine"])
def test_it_takes_part_in_a_compilation(registered, mode):
    """Any mode uses a registered database, with the members that it has when a function is compiled."""
    x = tt.dvector("x")

    def compiled_ops(mode):
        f = theano.function([x], tt.sin(x), mode=mode.excluding("fusion", "inplace"))
        return [node.op for node in f.maker.fgraph.toposort()]

    assert compiled_ops(mode) == [tt.sin]

    @register_topo("fast_run", db=registered, tracks=[tt.sin])
    def sin_to_cos(fgraph, node):
        return [tt.cos(node.inputs[0])]

    assert compiled_ops(mode) == [tt.cos]
    assert compiled_ops(mode.excluding("sin_to_cos")) == [tt.sin]
    assert compiled_ops(mode.excluding("topo_of_the_test")) == [tt.sin]
    with collect() as results:
        compiled_ops(mode)
    (mine,) = (result for result in results if result.name == "topo_of_the_test")
    assert mine.converged
    assert mine.applications == 1


def test_the_default_database_takes_part_in_fast_run():
    """Rewriters that are registered without ``db=`` run in mode fast_run, whether or not the engine is enabled."""
    with unchanged(topo_db):

        @register_topo("fast_run", tracks=[tt.sin])
        def test_sin_to_cos(fgraph, node):
            return [tt.cos(node.inputs[0])]

        x = tt.dvector("x")
        for mode in (STOCK, optdb.mode(STOCK)):
            f = theano.function([x], tt.sin(x), mode=mode.excluding("inplace"))
            assert [node.op for node in f.maker.fgraph.toposort()] == [tt.cos]


# -- the decorator


def test_register_topo_takes_plain_functions():
    db = TopoOptDB()

    @register_topo("fast_run", "mine", db=db, tracks=[tt.exp], position=3)
    def local_something(fgraph, node):
        """Do something."""

    assert isinstance(local_something, FunctionNodeRewriter)
    assert db["local_something"] is local_something
    assert local_something.tracks() == [tt.exp]
    assert local_something.__doc__ == "Do something."
    assert names(db.query("+mine")) == ["local_something"]
    assert names(db.query("+mine", position_cutoff=3)) == []


def test_register_topo_takes_theanos_rewriters():
    db = TopoOptDB()

    @register_topo("fast_run", db=db)
    @local_optimizer([tt.exp])
    def local_exp(node):
        return None

    assert db["local_exp"] is local_exp
    assert local_exp.tracks() == [tt.exp]
    register_topo("fast_run", db=db, name="merge")(MergeOptimizer())
    assert isinstance(db["merge"], MergeOptimizer)


def test_register_topo_stacks():
    """Register a rewriter in two databases, under two names."""
    first, second = TopoOptDB(), EquilibriumDB()

    @register_topo("a", db=first)
    @register_topo("b", db=second, tracks=[tt.exp], name="local_twice_in_theano")
    def local_twice(fgraph, node):
        return None

    assert first["local_twice"] is second["local_twice_in_theano"]


def test_register_topo_finds_databases_by_name():
    canonicalize = theano.compile.optdb["canonicalize"]

    def local_for_the_test(fgraph, node):
        return None

    with unchanged(canonicalize):
        register_topo("tag_of_the_test", db="canonicalize", tracks=[tt.exp])(local_for_the_test)
        assert canonicalize["local_for_the_test"].tracks() == [tt.exp]
    with pytest.raises(
        KeyError, match=r"^db='no_such_database': theano.compile.optdb has no such database; it has .*specialize"
    ):
        register_topo("fast_run", db="no_such_database")
    with pytest.raises(KeyError, match=r"^db='specialise': .*; did you mean 'specialize'\?$"):
        register_topo("fast_run", db="specialise")


def test_fast_run_is_the_tag_where_none_is_given():
    db = TopoOptDB()

    @register_topo(db=db)
    def local_default(fgraph, node):
        return None

    assert names(db.query("+fast_run")) == ["local_default"]


def defined(source, db):
    """Run the code of a notebook cell, and return its function."""
    cell = {"__name__": "__main__", "register_topo": register_topo, "local_optimizer": local_optimizer}
    cell.update(db=db, tt=tt, op_lifter=op_lifter)
    exec(source, cell)
    return cell["local_cell"]


@pytest.mark.parametrize(
    "cell",
    [
        "@register_topo('a', db=db, tracks=[tt.exp])\ndef local_cell(fgraph, node): return [node.inputs[0]]",
        "@register_topo('a', db=db)\n@local_optimizer([tt.exp])\ndef local_cell(node): return [node.inputs[0]]",
        "@register_topo('a', db=db)\n@op_lifter([tt.exp])\ndef local_cell(op, context, inputs, outputs): return None",
    ],
    ids=["function", "local_optimizer", "lifter"],
)
def test_a_cell_that_runs_again_replaces_its_rewriter(cell):
    db = TopoOptDB()
    first = defined(cell, db)
    with pytest.warns(UserWarning, match="replaces the earlier 'local_cell'"):
        second = defined(cell.replace("'a'", "'b'"), db)
    assert second is not first
    assert db["local_cell"] is second
    assert names(db.query("+a")) == []
    assert names(db.query("+b")) == ["local_cell"]


def test_another_function_of_that_name_is_an_error():
    db = TopoOptDB()
    cell = "@register_topo(db=db)\ndef local_cell(fgraph, node): return None"
    defined(cell, db)
    with pytest.raises(ValueError, match="existing"):
        register_topo(db=db, name="local_cell")(lambda fgraph, node: None)
    defined(cell, other := TopoOptDB())
    assert names(other.query("+fast_run")) == ["local_cell"]


def test_register_topo_says_what_is_wrong():
    db = TopoOptDB()
    with pytest.raises(TypeError, match=r"write @register_topo\('fast_run'\)"):
        register_topo(lambda fgraph, node: None)
    with pytest.raises(TypeError, match=r"must take \(fgraph, node\)"):
        register_topo(db=db)(lambda node: None)
    with pytest.raises(ValueError, match="tracks no op"):
        register_topo(db=db, tracks=[])(lambda fgraph, node: None)
    with pytest.raises(ValueError, match="tracks are Op classes"):
        register_topo(db=db, tracks=["exp"])(lambda fgraph, node: None)
    with pytest.raises(TypeError, match="position"):
        register_topo(db=db, position="early")(lambda fgraph, node: None)
    with pytest.raises(TypeError, match="do not pass tracks="):
        register_topo(db=db, tracks=[tt.exp])(local_optimizer([tt.exp])(lambda node: None))
    with pytest.raises(ValueError, match="no __name__"):
        register_topo(db=db)(MergeOptimizer())
    assert names(db.query("+fast_run")) == []


def test_requirements_are_attached():
    db, asked = TopoOptDB(), []

    @register_topo("fast_run", db=db, requirements=[asked.append])
    def local_demanding(fgraph, node):
        return None

    fgraph = graph_of([x := tt.dvector("x")], tt.exp(x))
    db.query("+fast_run").optimize(fgraph)
    assert asked == [fgraph]


def test_a_query_without_a_cutoff_takes_all():
    query = Query(["fast_run"])
    everything = topo_db.query(query)
    query.position_cutoff = None
    assert names(topo_db.query(query)) == names(everything)
