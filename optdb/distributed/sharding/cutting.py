"""Divides one worker's graph into functions that run before and after the sums over workers (`synchronous_training`).

``gradients`` takes the worker's part of the batch and stores summands in shared variables. ``results`` and ``update``
read sums from other shared variables, and compute the user's outputs and next values. A failure while workers wait for
each other thus leaves all copies of the state unchanged.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optdb.distributed.errors import NoGradients, NotSplittable
from optdb.distributed.sharding import rules
from optdb.distributed.sharding.collective import GOT, MOMENTS, SUM, AllReduce, Completion, MergeMoments, ReductionRound
from optdb.distributed.sharding.layouts import Own, Partial, RowNumbers, Sharded, Value, array_of
from optdb.distributed.sharding.spreading import Spreader
from optdb.distributed.training_functions import OutputReduction, SynchronousTraining
from optdb.host.api.graph import Apply, Constant, Variable, io_toposort
from optdb.host.api.traces import source_location
from optdb.host.api.variables import SharedVariable, TensorType, TensorVariable
from optdb.host.theano.functions.channel_statistics import NUMBERS
from optdb.host.theano.functions.originals import Original, compile_step, held_variable, int_scalar, tensor

__all__ = ["synchronous_training"]

#: Modules that register rules when they are imported.
RULE_MODULES = rules.FAMILIES
#: The minimum number of summands in a bucket; for example, a layer has two: its matrix and its biases.
_BUCKET_MEMBERS = 2
#: Ops that combine values from all workers.
_OVER_WORKERS = (AllReduce, MergeMoments)


def synchronous_training(
    original: Original,
    axes: Mapping[Variable, int],
    reductions: Mapping[int, str],
    gradients: Mapping[SharedVariable, Variable] | None,
    own_statistics: bool,
    buckets: int = 0,
) -> SynchronousTraining:
    """Return the functions for exact steps, which by default give the same results as steps on one device.

    Parameters
    ----------
    original : Original
        The user's graph.
    axes : mapping
        Maps each split argument to the axis along which it is split.
    reductions : mapping
        Maps an output's index to 'mean', 'sum' or 'concatenate'. Other outputs have the values for the whole batch.
    gradients : mapping, optional
        Maps shared variables to their gradients, which are means over the batch. Other gradients are found in the
        graph.
    own_statistics : bool
        Whether batch normalization uses the statistics of each worker's part.
    buckets : int
        The maximum number of pieces into which a worker's summands are divided for sending.

    Raises
    ------
    NoGradients
        If next values cannot be computed from sums over workers.
    """
    length, first, token = int_scalar("batch_length"), int_scalar("first_row"), int_scalar("attempt")
    spreader = Spreader(axes, length, first, own_statistics or gradients is not None)
    if gradients is not None:
        share = spreader.own_length / length
        for var in _located(original, gradients):
            spreader.values[var] = Partial(array_of(var) * share.astype(var.type.dtype))
    asked = {i: var for i, var in enumerate(original.outputs) if i not in reductions}
    updates = _following(spreader, original)
    specs, wholes, own = _outputs(spreader, original, asked, reductions)
    roots = [*wholes, *updates.values()]
    return _Cut(original, axes, length, first, token, buckets).training(roots, own, specs, updates)


def _following(spreader: Spreader, original: Original) -> dict[SharedVariable, Variable]:
    """Return the next values of the shared variables, which are equal on all workers."""
    following: dict[SharedVariable, Variable] = {}
    for shared, var in original.updates.items():
        try:
            (value,) = spreader.spread([var])
            following[shared] = shared.type.filter_variable(_whole(spreader, value, var))
        except NotSplittable as error:
            raise _no_gradients(shared, error) from error
    return following


def _whole(spreader: Spreader, value: Value, var: Variable) -> Variable:
    if isinstance(value, Sharded | Own | RowNumbers):
        raise NotSplittable(var.owner, "its value is specific to each worker's rows")
    return spreader.whole(value, var.owner).var


def _no_gradients(shared: Variable, error: NotSplittable) -> NoGradients:
    name = shared.name or "w"
    line = source_location(error.node.outputs[0])[0] if error.node is not None and error.node.outputs else ""
    where = f"\nIt was created {'by ' if not line.startswith('after') else ''}{line}" if line else ""
    return NoGradients(
        f"exact training cannot compute the next value of {shared.name or shared} from sums over workers. "
        f"{error}{where}\n"
        f"The cure: pass its gradient, a mean over the batch, as in DataParallel(step, gradients={{{name}: "
        "gradient}) with the variables of your graph; or let each worker train on its own and average the values, "
        "as in DataParallel(step, average_every=10)"
    )


def _outputs(
    spreader: Spreader, original: Original, asked: Mapping[int, Variable], reductions: Mapping[int, str]
) -> tuple[list[OutputReduction], list[Variable], list[Variable]]:
    """Return each output's reduction, the variables that are equal on all workers, and each worker's own variables."""
    specs: list[OutputReduction] = []
    wholes: list[Variable] = []
    own: list[Variable] = []
    for i, var in enumerate(original.outputs):
        if i not in asked:
            specs.append(OutputReduction(reductions[i], len(own)))
            own.append(var)
            continue
        try:
            (value,) = spreader.spread([var])
            if isinstance(value, Sharded) and not value.interleaved:
                specs.append(OutputReduction("concatenate", len(own), value.axis))
                own.append(value.var)
                continue
            wholes.append(_whole(spreader, value, var))
        except NotSplittable as error:
            raise NoGradients(
                f"output {i} ({var}) cannot be combined from parts of the batch. {error}\n"
                f"The cure: specify how, for example DataParallel(step, outputs={{{i}: 'mean'}}); 'sum' and "
                "'concatenate' are the alternatives"
            ) from error
        specs.append(OutputReduction("whole", len(wholes) - 1))
    return specs, wholes, own


def _located(original: Original, gradients: Mapping[SharedVariable, Variable]) -> list[Variable]:
    """Return the given gradients as variables in the compiled function's graph."""
    numbers: dict[Any, int] = {}
    known = {_structure(out, numbers): out for node in original.nodes for out in node.outputs}
    located = []
    for shared, gradient in gradients.items():
        found = known.get(_structure(gradient, numbers))
        if found is None:
            raise NoGradients(
                f"the gradient given for {shared.name or shared} ({gradient}) is not in the function's graph.\n"
                "The cure: pass the variable that theano.grad returned, from which the updates are computed"
            )
        located.append(found)
    return located


def _structure(var: Variable, numbers: dict[Any, int]) -> int:
    """Return a number that is the same for variables computed by the same ops from the same leaves."""

    def number(key: Any) -> int:
        return numbers.setdefault(key, len(numbers))

    def leaf(var: Variable) -> Any:
        return ("constant", var.type, var.signature()) if isinstance(var, Constant) else ("leaf", var)

    for node in io_toposort([], [var]):
        inputs = tuple(numbers[each] if each in numbers else number(leaf(each)) for each in node.inputs)
        for out in node.outputs:
            numbers[out] = number((node.op, inputs, out.index))
    return numbers[var] if var in numbers else number(leaf(var))


class _Cut:
    """Cuts a worker's graph at the final sums over workers, on which only outputs and next values depend."""

    def __init__(
        self,
        original: Original,
        axes: Mapping[Variable, int],
        length: Variable,
        first: Variable,
        token: Variable,
        buckets: int,
    ) -> None:
        self._original = original
        self._local = {*axes, first}
        self._length, self._first, self._token = length, first, token
        self._buckets = buckets

    def training(
        self,
        roots: Sequence[Variable],
        own: Sequence[Variable],
        specs: list[OutputReduction],
        updates: Mapping[SharedVariable, Variable],
    ) -> SynchronousTraining:
        """Return the functions for training; `roots` are equal on all workers, whereas `own` are not."""
        nodes = io_toposort([], [*roots, *own])
        reduces = [node for node in nodes if isinstance(node.op, _OVER_WORKERS)]
        early = set(io_toposort([], [*own, *(var for node in reduces for var in node.inputs)]))
        # Only sums are deferred to the end of the step.
        final = [node for node in reduces if node not in early and isinstance(node.op, AllReduce)]
        depths = _depths(nodes)
        final.sort(key=lambda node: depths[node.outputs[0]])
        self._final = set(final)
        self._late = _downstream(nodes, {node.outputs[0] for node in final})
        self._of_part = _downstream(nodes, self._local, stop=_OVER_WORKERS)
        carried: dict[Variable, None] = {}
        for root in roots:
            self._carry(root, carried)
        inner = [node for node in reduces if node not in self._final]
        outputs = [*(node.inputs[0] for node in final), *carried, *own]
        rebuilt, rounds = self._bundled(inner, outputs)
        summands = [_held(node.inputs[0], f"summand {i}") for i, node in enumerate(final)]
        sums = [_held(node.inputs[0], f"sum {i}") for i, node in enumerate(final)]
        kept = [_held(var, f"carried {i}") for i, var in enumerate(carried)]
        following = {held: _as_held(var) for held, var in zip([*summands, *kept], rebuilt, strict=False)}
        buckets = self._in_buckets(summands)
        for number, members in enumerate(buckets):
            held = [summands[i] for i in members]
            completed = Completion(number, len(held)).make_node(*(following[var] for var in held)).outputs
            following.update(zip(held, completed, strict=True))
        fresh = {node.outputs[0]: _taken(held, node.outputs[0]) for held, node in zip(sums, final, strict=True)}
        fresh.update((var, _taken(held, var)) for held, var in zip(kept, carried, strict=True))
        late = _rebuild(roots, fresh)
        wholes, next_values = late[: len(late) - len(updates)], late[len(late) - len(updates) :]
        arguments = [argument.variable for argument in self._original.arguments]
        same = [var for var in arguments if var not in self._local]
        name, optimizer = self._original.name or "step", self._original.optimizer
        given, taken = [*arguments, self._length, self._first, self._token], [*same, self._length]
        return SynchronousTraining(
            shared=self._original.shared,
            # Results are not borrowed, since the next step may run before the caller has used them.
            gradients=compile_step(
                given, rebuilt[len(following) :], following, optimizer, f"{name}: gradients", borrow=False
            ),
            results=compile_step(taken, wholes, {}, optimizer, f"{name}: results", borrow=False) if wholes else None,
            update=compile_step(taken, [], dict(zip(updates, next_values, strict=True)), optimizer, f"{name}: update"),
            summands=summands,
            sums=sums,
            carried=kept,
            buckets=buckets,
            rounds=rounds,
            same=[i for i, var in enumerate(arguments) if var not in self._local],
            outputs=specs,
        )

    def _in_buckets(self, summands: Sequence[SharedVariable]) -> list[list[int]]:
        """Divide the floating-point summands into consecutive groups; return the indices in each group but the last."""
        floats = [i for i, summand in enumerate(summands) if _is_float(summand)]
        count = min(self._buckets, len(floats) // _BUCKET_MEMBERS)
        ends = [len(floats) * number // count for number in range(count)]
        return [floats[start:stop] for start, stop in itertools.pairwise(ends)]

    def _carry(self, var: Variable, carried: dict[Variable, None]) -> None:
        """Find the ancestors of `var` that `gradients` must store for the other functions; add these to `carried`."""
        todo, seen = [var], set()
        while todo:
            var = todo.pop()
            if var in seen:
                continue
            seen.add(var)
            node = var.owner
            if node in self._final:
                continue
            if node is None:
                if var in self._local:
                    carried[var] = None
                continue
            is_sum = isinstance(node.op, _OVER_WORKERS)
            if is_sum or (var in self._of_part and var not in self._late):
                carried[var] = None
                continue
            todo += node.inputs

    def _bundled(self, inner: Sequence[Apply], outputs: Sequence[Variable]) -> tuple[list[Variable], int]:
        """Copy a graph, with one reduction round for all inner sums and moments that do not depend on each other.

        Return the outputs and the number of reduction rounds. Integers, which are on the host, have separate reduction
        rounds.
        """
        levels: dict[tuple[int, bool], list[Apply]] = {}
        depth: dict[Variable, int] = {}
        of_inner = set(inner)
        for node in io_toposort([], [node.outputs[0] for node in inner]):
            level = max((depth.get(var, 0) for var in node.inputs), default=0)
            if node in of_inner:
                levels.setdefault((level, _is_float(node.outputs[0])), []).append(node)
                level += 1
            depth.update(dict.fromkeys(node.outputs, level))
        copies: dict[Variable, Variable] = {}
        token = self._token
        for number, key in enumerate(sorted(levels)):
            token = _round(number, levels[key], token, copies)
        return _rebuild(outputs, copies), len(levels)


def _round(number: int, nodes: Sequence[Apply], token: Variable, copies: dict[Variable, Variable]) -> Variable:
    """Create the reduction round that replaces the given nodes, add its results to `copies`, and return its token.

    Arrays with the same reduction and dtype share a vector, since each vector needs a transfer and a message.
    """
    groups: dict[tuple[str, str], list[tuple[Apply, list[Variable]]]] = {}
    for node in nodes:
        kind = SUM if isinstance(node.op, AllReduce) else MOMENTS
        dtype = node.outputs[0].type.dtype
        groups.setdefault((kind, dtype), []).append((node, _rebuild(node.inputs, copies)))
    inputs: list[Variable] = []
    for (kind, _), members in groups.items():
        if kind == SUM:
            inputs.append(_packed([array_of(summand) for _, (summand,) in members]))
            continue
        inputs.append(_packed([array_of(moments) for _, (_, moments) in members]))
        inputs.append(tensor.stack([array_of(moments).shape[0] for _, (_, moments) in members]))
        inputs.append(tensor.stack([count for _, (count, _) in members]))
    token, *vectors = ReductionRound(number, [kind for kind, _ in groups]).make_node(token, *inputs).outputs
    for vector, ((kind, _), members) in zip(vectors, groups.items(), strict=True):
        start = tensor.constant(0, dtype="int64")
        for node, arrays in members:
            size = array_of(arrays[0]).size if kind == SUM else array_of(arrays[1]).size // NUMBERS * GOT
            stop = start + size
            part = vector if len(members) == 1 else array_of(vector)[start:stop]
            copies[node.outputs[0]] = _shaped(array_of(part), array_of(arrays[0])) if kind == SUM else part
            start = stop
    return token


def _is_float(var: Variable) -> bool:
    """Return whether a variable has a floating-point dtype, whose arrays are on the device."""
    return bool(var.type.dtype.startswith("float"))


def _packed(arrays: Sequence[TensorVariable]) -> Variable:
    """Return the elements of all arrays as one vector."""
    vectors = [var if var.type.ndim == 1 else var.flatten() for var in arrays]
    return vectors[0] if len(vectors) == 1 else tensor.join(0, *vectors)


def _shaped(vector: TensorVariable, like: TensorVariable) -> Variable:
    """Return the elements of a vector as an array with the type and shape of another array."""
    shaped = vector if like.type.ndim == 1 else vector.reshape(like.shape, ndim=like.type.ndim)
    return like.type.filter_variable(tensor.patternbroadcast(shaped, like.type.broadcastable))


def _held(var: Variable, name: str) -> SharedVariable:
    """Return a shared variable for a summand or a sum; a floating-point scalar becomes a vector on the device."""
    if not isinstance(var.type, TensorType):
        raise NoGradients(
            f"{var} is not an array, but a step would have to pass it from the forward pass to the updates.\n"
            "The cure: let each worker train on its own, as in DataParallel(step, average_every=10)"
        )
    return held_variable(_as_held(var), name)


def _as_held(var: Variable) -> Variable:
    return array_of(var).dimshuffle("x") if var.type.ndim == 0 and _is_float(var) else var


def _taken(held: SharedVariable, var: Variable) -> Variable:
    """Return the shared variable `held`, which stores the value of `var`, with the rank of `var`."""
    return array_of(held).dimshuffle() if held.type.ndim > var.type.ndim else held


def _downstream(nodes: Sequence[Apply], starts: Iterable[Variable], stop: tuple[type, ...] = ()) -> set[Variable]:
    """Return `starts` and the variables that depend on them; do not follow dependencies through ops of class `stop`."""
    reached = set(starts)
    for node in nodes:
        if not isinstance(node.op, stop) and not reached.isdisjoint(node.inputs):
            reached.update(node.outputs)
    return reached


def _depths(nodes: Sequence[Apply]) -> dict[Variable, int]:
    """Map each output to the length of the longest path to it; the nodes are in topological order."""
    depths: dict[Variable, int] = {}
    for node in nodes:
        depth = 1 + max((depths.get(var, 0) for var in node.inputs), default=0)
        depths.update(dict.fromkeys(node.outputs, depth))
    return depths


def _rebuild(outputs: Sequence[Variable], copies: dict[Variable, Variable]) -> list[Variable]:
    """Copy the graph of `outputs`; `copies` maps variables to replacements, and receives all copied variables."""
    for node in io_toposort(list(copies), list(outputs)):
        inputs = [copies.get(var, var) for var in node.inputs]
        same = all(new is old for new, old in zip(inputs, node.inputs, strict=True))
        made = node.outputs if same else node.clone_with_new_inputs(inputs).outputs
        for old, new in zip(node.outputs, made, strict=True):
            copies.setdefault(old, new)
    return [copies.get(var, var) for var in outputs]
