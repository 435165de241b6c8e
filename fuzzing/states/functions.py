"""Compiles a function of shared variables in one of several modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import theano
import theano.tensor as tt

import optdb
from fuzzing.states.expressions import Kind, apply_theano
from fuzzing.states.specs import ARGUMENT, Expression, Spec

__all__ = ["HOST_WAYS", "WAYS", "compiled", "shared_variables"]

#: The ways that use Theano's own linkers, which may leave shared variables in any state after an error.
HOST_WAYS = ("py", "vm", "engine")
WAYS = (*HOST_WAYS, "mode", "simulator")


def shared_variables(kinds: Sequence[Kind], values: Sequence[np.ndarray], defaults: frozenset[int]) -> list[Any]:
    """Return shared variables on the host; the ones numbered in `defaults` have a default update that adds one."""
    variables = [theano.shared(np.array(value), f"s{k}", borrow=True) for k, value in enumerate(values)]
    for k in defaults:
        variables[k].default_update = apply_theano(("plus_one",), variables[k], kinds[k], None, None)
    return variables


def compiled(spec: Spec, kinds: Sequence[Kind], shared: Sequence[Any], way: str, device: str) -> Any:
    """Compile a function of shared variables; `way` is one of `WAYS`, or "target" for variables on the device."""
    argument, index = kinds[spec.argument].symbolic("a"), tt.iscalar("i")

    def built(expression: Expression) -> Any:
        is_argument = expression.leaf == ARGUMENT
        kind = kinds[spec.argument if is_argument else expression.leaf]
        start = argument if is_argument else shared[expression.leaf]
        return apply_theano(expression.operations, start, kind, argument, index)

    outputs = []
    for output in spec.outputs:
        var = built(output.expression)
        var = tt.cast(var, "float32") * np.float32(2) if output.as_float else var
        # Theano's own functions may overwrite any borrowed result.
        outputs.append(theano.Out(var, borrow=output.borrow and way not in HOST_WAYS))

    def compile_in(mode: theano.Mode) -> Any:
        return theano.function(
            [theano.In(argument, mutable=spec.mutable), index],
            outputs,
            updates=[(shared[k], built(source)) for k, source in spec.updates],
            givens=[(shared[k], shared[by]) for k, by in spec.givens],
            no_default_updates=not spec.default_updates,
            on_unused_input="ignore",
            mode=mode,
        )

    if way == "engine":
        return compile_in(optdb.mode())
    if way == "target":
        return compile_in(theano.compile.get_default_mode().including("opencl"))
    if way == "mode":
        return compile_in(optdb.mode(device=device))
    # Theano's linker `py` does not support branches.
    is_machine = way == "vm" or "if_positive" in spec.operations()
    linker = theano.gof.vm.VM_Linker(allow_gc=False, use_cloop=False) if is_machine else "py"
    try:
        return compile_in(theano.Mode(linker, "fast_run"))
    except (theano.gof.InconsistencyError, AssertionError):
        # Theano rejects some functions that return an input and its length.
        with optdb.enable():
            return compile_in(theano.Mode(linker, "fast_run"))
