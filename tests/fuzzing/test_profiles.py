"""If a process changes its device's profile, it uses this profile, also for files that it loads."""

from __future__ import annotations

import numpy as np
import pytest
import theano

from fuzzing.profiles import KERNELS, MEMORIES, context_like, replace_profile
from fuzzing.states.expressions import Kind
from fuzzing.states.functions import compiled, shared_variables
from fuzzing.states.model import Model
from fuzzing.states.separate import of_file
from fuzzing.states.specs import COUNT, Expression, Output, Spec


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("memory", MEMORIES)
def test_a_profile_is_replaced(own_profile, kernels, memory):
    context, own = own_profile, own_profile.profile
    replace_profile(kernels=kernels, memory=memory)
    assert context.profile.device_kind == (own.device_kind if kernels == "own" else "gpu")
    assert context.profile.has_tensor_cores == (own.has_tensor_cores or kernels == "copying gpu")
    assert context.profile.shares_host_memory == (memory == "own" and own.shares_host_memory)
    new = context_like()
    assert new is not context
    assert (new.spec, new.profile) == (context.spec, context.profile)


@pytest.mark.thorough
def test_a_file_is_computed_by_the_profile(own_profile):
    replace_profile(kernels="gpu", memory="separate")
    kinds = (Kind("float32", 1),) * COUNT
    values = {k: np.ones(3, "float32") for k in range(COUNT)}
    spec = Spec((Output(Expression(0, ("plus_one",))),))
    with theano.configparser.change_flags(cxx=""):
        shared = shared_variables(kinds, list(values.values()), frozenset())
        function = compiled(spec, kinds, shared, "simulator", "auto")
        stateful = of_file(function, Model(spec, kinds, frozenset()), values, (values[0], 0), "auto")
    assert stateful.call.context.profile == own_profile.profile
    assert stateful.difference(values[0], 0) is None
