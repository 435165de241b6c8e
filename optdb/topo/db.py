"""TopoOptDB, the engine's database, and the decorator that registers rewriters."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from optdb.callers import caller_level
from optdb.host.api.config import config
from optdb.host.api.databases import DB, Query, compile_db, database_names
from optdb.host.api.rewriters import FunctionNodeRewriter, LocalOptimizer
from optdb.topo.rewriter import DEFAULT_DIRECTION, TopoRewriter
from optdb.topo.worklist import DIRECTIONS
from optdb.unknown_names import UnknownName, nearest


class TopoOptDB(DB):
    """A database of rewriters; a query returns one rewriter that applies them to a fixed point in topological order.

    It holds node rewriters, graph rewriters and other databases. Like Theano's SequenceDB, EquilibriumDB and
    LocalGroupDB, it can be registered in ``theano.compile.optdb`` or queried on its own.

    Parameters
    ----------
    direction : {'out_to_in', 'in_to_out'}
        Whether outputs or inputs are visited first.
    max_use_ratio : float, optional
        The limit on a rewriter's applications, as a multiple of the number of nodes. By default, each query reads
        ``config.optdb.max_use_ratio``.

    Examples
    --------
    >>> import optdb, theano
    >>> db = optdb.TopoOptDB()
    >>> db.register("fold", theano.tensor.opt.constant_folding, "fast_run")
    >>> db.query("+fast_run").direction
    'out_to_in'
    """

    def __init__(self, direction: str = DEFAULT_DIRECTION, max_use_ratio: float | None = None) -> None:
        if direction not in DIRECTIONS:
            raise ValueError(f"direction must be one of {DIRECTIONS}, not {direction!r}")
        super().__init__()
        self.direction = direction
        self.max_use_ratio = max_use_ratio
        self._positions: dict[str, float] = {}
        self._final: set[str] = set()
        self._cleanup: set[str] = set()

    def register(  # type: ignore[override]  # Theano's method takes all but two parameters by position
        self,
        name: str,
        obj: Any,
        *tags: str,
        position: float | str = "last",
        final_opt: bool = False,
        cleanup: bool = False,
        use_db_name_as_tag: bool = True,
    ) -> None:
        """Register a rewriter or a database.

        Parameters
        ----------
        name : str
            The object's name, which queries can include or exclude.
        obj : LocalOptimizer, Optimizer or DB
            A node rewriter, a graph rewriter, or a database of such rewriters.
        *tags : str
            Names that several members may share.
        position : float or 'last'
            Rewriters are tried in the order of their positions.
        final_opt : bool
            Whether a graph rewriter runs at the end of each round.
        cleanup : bool
            Whether a graph rewriter runs after each replacement.
        use_db_name_as_tag : bool
            Whether the name of this database also selects the object.

        Raises
        ------
        TypeError
            If `obj` is not a rewriter or a database, or `position` is not a number.
        ValueError
            If the name is taken, if a tag is the name of another member, or if both `final_opt` and `cleanup` are set.
        """
        if position != "last" and (isinstance(position, (str, bool)) or not isinstance(position, (int, float))):
            raise TypeError(f"the position of '{name}' must be a number or 'last': {position!r}")
        if final_opt and cleanup:
            raise ValueError(f"'{name}' cannot be both a final and a cleanup rewriter")
        if (final_opt or cleanup) and isinstance(obj, LocalOptimizer):
            raise TypeError(f"'{name}' is a node rewriter: only graph rewriters run between others")
        kwargs = {} if use_db_name_as_tag else {"use_db_name_as_tag": False}
        super().register(name, obj, *tags, **kwargs)
        self._positions[name] = self._next_position() if isinstance(position, str) else position
        if final_opt:
            self._final.add(name)
        if cleanup:
            self._cleanup.add(name)

    def _next_position(self) -> float:
        return max(self._positions.values(), default=-1) + 1

    def query(self, *tags: Any, **kwtags: Any) -> TopoRewriter:
        """Return a graph rewriter that runs the selected members.

        Parameters
        ----------
        *tags : Query or str
            A Query, or strings beginning with '+' (include), '&' (require) or
            '-' (exclude).
        **kwtags : Query
            Queries for nested databases, by name, and ``position_cutoff``, which excludes members from that position
            on.

        Returns
        -------
        TopoRewriter
            A rewriter that applies the selected members to a fixed point.
        """
        cutoff = kwtags.pop("position_cutoff", config.optdb.position_cutoff)
        selected = super().query(*tags, **kwtags)
        if tags and isinstance(tags[0], Query):
            # As in Theano's databases, a query may lack ``position_cutoff``.
            cutoff = getattr(tags[0], "position_cutoff", None) or cutoff
        members = sorted(
            (obj for obj in selected if self._positions[obj.name] < cutoff),
            key=lambda obj: (self._positions[obj.name], obj.name),
        )
        between = self._final | self._cleanup
        return TopoRewriter(
            [obj for obj in members if obj.name not in between],
            direction=self.direction,
            max_use_ratio=self.max_use_ratio,
            final_rewriters=[obj for obj in members if obj.name in self._final],
            cleanup_rewriters=[obj for obj in members if obj.name in self._cleanup],
            name=self.name,
        )


#: The tag of rewriters that only the engine runs: its queries include the tag, and Theano's own queries do not.
ENGINE_TAG = "with_topo_engine"

#: The default database of :func:`register_topo`; it runs after Theano's specialize phase.
topo_db = TopoOptDB()
compile_db().register("topo", topo_db, 2.5, "fast_run", "fast_compile", ENGINE_TAG)


def register_topo(
    *tags: str,
    db: DB | str | None = None,
    position: float | str = "last",
    name: str | None = None,
    tracks: Sequence[Any] | None = None,
    requirements: Sequence[Callable[[Any], None]] = (),
) -> Callable[[Any], Any]:
    """Register the decorated node rewriter in a database.

    Parameters
    ----------
    *tags : str
        The rewriter's tags. ``'fast_run'`` and ``'fast_compile'`` add it to these modes; the default is ``'fast_run'``.
    db : TopoOptDB, other database or str
        The database; a name is looked up in ``theano.compile.optdb``. By default, rewriters are registered in the
        engine's database, and lifters in the database of their device.
    position : float or 'last'
        The position among the rewriters of the database. Only databases with
        positions accept it.
    name : str, optional
        The name to register; the rewriter's own name by default.
    tracks : sequence of Op classes or instances, optional
        If the rewriter is a plain function: the ops for which it is called; None means all ops.
    requirements : sequence of callables
        If the rewriter is a plain function: functions that are called with the graph before rewriting.

    Returns
    -------
    callable
        A decorator. It accepts a plain function ``f(fgraph, node)``, one of Theano's node rewriters
        (``@theano.gof.local_optimizer``) or anything else that the database accepts, and returns the rewriter. If an
        interactive session redefines a function, the new definition replaces the old one, with a warning.

    Examples
    --------
    >>> import optdb, theano.tensor as T
    >>> @optdb.register_topo("fast_run", tracks=[T.sqr])
    ... def sqr_of_neg(fgraph, node):
    ...     x = node.inputs[0]
    ...     if x.owner is not None and x.owner.op == T.neg:
    ...         return [T.sqr(x.owner.inputs[0])]
    """
    tags = tags or ("fast_run",)
    if any(not isinstance(tag, str) for tag in tags):
        raise TypeError(
            "register_topo takes tags and returns a decorator: write @register_topo('fast_run'), not @register_topo"
        )

    # Look up the database here, so that an unknown name raises an error before the decorator is applied.
    chosen_db = _named_database(db) if isinstance(db, str) else db

    def register(obj: Any) -> Any:
        rewriter = _as_rewriter(obj, tracks, requirements)
        database = _default_database(rewriter) if chosen_db is None else chosen_db
        placing = {} if position == "last" else {"position": position}
        chosen_name = name or _own_name(rewriter)
        if _is_defined_again(rewriter, _registered(database, chosen_name)):
            warnings.warn(
                f"register_topo replaces the earlier '{chosen_name}' of this session", stacklevel=caller_level()
            )
            _unregister(database, chosen_name)
        database.register(chosen_name, rewriter, *tags, **placing)
        return rewriter

    return register


def _registered(database: DB, name: str) -> Any:
    if name not in database._names:
        return None
    return next((member for member in database.__db__[name] if member.name == name), None)


def _is_defined_again(new: Any, old: Any) -> bool:
    """Return whether two rewriters are definitions of the same function in an interactive session."""
    functions = [_function_of(new), _function_of(old)]
    if type(new) is not type(old) or None in functions:
        return False
    places = {(function.__module__, function.__qualname__) for function in functions}
    return len(places) == 1 and functions[0].__module__ == "__main__"


def _function_of(rewriter: Any) -> Any:
    found = (getattr(rewriter, attr, None) for attr in ("rewrite", "function", "transform"))
    return next((function for function in found if hasattr(function, "__qualname__")), None)


def _unregister(database: DB, name: str) -> None:
    [member] = [member for member in database.__db__[name] if member.name == name]
    for tagged in database.__db__.values():
        if member in tagged:
            tagged.remove(member)
    del database.__db__[name]
    database._names.discard(name)


def _named_database(name: str) -> DB:
    databases = compile_db()
    try:
        found: DB = databases[name]
    except KeyError:
        known = database_names(databases)
        near = nearest(name, known)
        hint = f"it has {', '.join(known)}" if near is None else f"did you mean {near!r}?"
        raise UnknownName(f"db={name!r}: theano.compile.optdb has no such database; {hint}") from None
    return found


def _default_database(rewriter: Any) -> DB:
    # A lifter, which moves nodes to a device, works only in the database that it names.
    default = getattr(rewriter, "default_database", None)
    return topo_db if default is None else default()


def _as_rewriter(obj: Any, tracks: Sequence[Any] | None, requirements: Sequence[Callable[[Any], None]]) -> Any:
    if callable(obj) and not isinstance(obj, LocalOptimizer) and not hasattr(obj, "apply"):
        return FunctionNodeRewriter(obj, tracks, requirements)
    if tracks is not None or requirements:
        raise TypeError(f"{obj} defines tracks and requirements itself: do not pass tracks= or requirements=")
    return obj


def _own_name(rewriter: Any) -> str:
    name: str | None = getattr(rewriter, "__name__", None)
    if name is None:
        raise ValueError(f"{rewriter!r} has no __name__: pass name= to register_topo")
    return name
