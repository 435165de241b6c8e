"""Compiles PyMC models for nutpie's sampler, with log densities on a device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from optdb.numpy_types import HostArray

#: nutpie's name for the axis of the parameter vector.
_PARAMETER_AXIS = "unconstrained_parameter"


def compile_nutpie(
    model: Any,
    mode: Any = "OPENCL",
    *,
    initial_points: Mapping[Any, Any] | None = None,
    jitter_rvs: Iterable[Any] | None = None,
    var_names: Sequence[str] | None = None,
) -> Any:
    """Compile a model for `nutpie.sample`, with its log density on a device.

    With the same seed, the draws equal those of a model from `nutpie.compile_pymc_model` up to rounding. Each
    evaluation reads the model's shared variables, such as `pymc.Data`: set them with `pymc.set_data`, not with
    `with_data`.

    Parameters
    ----------
    model : pymc.Model
        A model whose free variables are all continuous.
    mode : pytensor.compile.mode.Mode or str
        The mode of the log density, its gradient, and the stored variables.
    initial_points : mapping, optional
        Initial values by variable or name, which replace those of the model.
    jitter_rvs : iterable, optional
        The variables whose initial values are jittered; by default, all.
    var_names : sequence of str, optional
        The variables to store; by default, all.

    Returns
    -------
    nutpie.compiled_pyfunc.PyFuncModel
        The model for `nutpie.sample`.

    Raises
    ------
    ImportError
        If PyMC or nutpie is not installed.
    TypeError
        If a free variable is discrete.
    """
    try:
        from nutpie.compiled_pyfunc import from_pyfunc
        from pymc.initial_point import make_initial_point_fn
    except ImportError as error:
        raise ImportError(f"{error}; the cure: pip install 'optdb[nutpie]'") from error
    discrete = [var.name for var in model.discrete_value_vars]
    if discrete:
        raise TypeError(
            f"nutpie only samples continuous variables, and these are discrete: {', '.join(discrete)}. Use pymc.sample"
        )
    chosen = model.free_RVs if jitter_rvs is None else jitter_rvs
    start = make_initial_point_fn(model=model, overrides=initial_points, jitter_rvs=set(chosen))
    functions = _Functions(model, mode, start, _stored(model, var_names))
    point = functions.initial(0)
    functions.logp(point)
    shapes = {name: value.shape for name, value in functions.expand(point).items()}
    names = list(shapes)
    return from_pyfunc(
        point.size,
        lambda: functions.logp,
        lambda seed1, seed2, chain: functions.expand,
        [np.dtype("float64")] * len(names),
        list(shapes.values()),
        names,
        coords=_coordinates(model, shapes),
        dims=_axes(model, shapes),
        make_initial_point_fn=functions.initial,
        reparameterized_names=list(_transformed(model)),
    )


def _stored(model: Any, var_names: Sequence[str] | None) -> list[Any]:
    """Return the variables of a draw: all parameters, and the variables computed from them."""
    parameters = model.continuous_value_vars
    known = {var.name for var in parameters}
    others = [var for var in model.unobserved_value_vars if var.name not in known]
    return [*parameters, *(var for var in others if var_names is None or var.name in var_names)]


def _transformed(model: Any) -> dict[str, str]:
    """Map the names of transformed parameters to the names of their variables."""
    values = {var: model.rvs_to_values[var].name for var in model.free_RVs if model.rvs_to_transforms[var] is not None}
    return {value: var.name for var, value in values.items()}


def _axes(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the names of each variable's axes; a parameter with the same shape as its variable gets the same names."""
    axes = dict(model.named_vars_to_dims)
    for parameter, name in _transformed(model).items():
        if name in axes and shapes.get(name) == shapes[parameter]:
            axes[parameter] = axes[name]
    return axes


def _coordinates(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the labels along axes: those in the model, and a name for each element of the parameter vector."""
    import pandas as pd

    coordinates = {
        name: pd.RangeIndex(int(model.dim_lengths[name].eval())) if values is None else pd.Index(values)
        for name, values in model.coords.items()
    }
    parameters = [
        f"{var.name}_{'.'.join(map(str, index))}" if index else var.name
        for var in model.continuous_value_vars
        for index in product(*map(range, shapes[var.name]))
    ]
    return {**coordinates, _PARAMETER_AXIS: pd.Index(parameters)}


class _Functions:
    """The functions that nutpie's chains call in threads, one call at a time, as PyTensor requires."""

    def __init__(
        self, model: Any, mode: Any, start: Callable[[int], dict[str, HostArray]], stored: Sequence[Any]
    ) -> None:
        from pymc import compile
        from pymc.logprob.utils import ParameterValueError
        from pymc.pytensorf import join_nonshared_inputs

        self._lock = threading.Lock()
        self._start = start
        self._parameters = [var.name for var in model.continuous_value_vars]
        self._density = model.logp_dlogp_function(ravel_inputs=True, mode=mode)
        outputs, vector = join_nonshared_inputs(model.initial_point(0), stored, model.continuous_value_vars)
        self._names = [var.name for var in stored]
        self._stored = compile([vector], outputs, mode=mode)
        self._dtype = vector.type.dtype
        #: Errors raised at a point where the density is undefined.
        self._no_density = (ParameterValueError, np.linalg.LinAlgError)

    def initial(self, seed: int) -> HostArray:
        with self._lock:
            point = self._start(seed)
        parameters: HostArray = np.concatenate([np.ravel(point[name]) for name in self._parameters], dtype="float64")
        return parameters

    def logp(self, parameters: HostArray) -> tuple[float, HostArray]:
        """Return the log density and its gradient.

        If the density or the gradient is undefined, the returned density is NaN, which nutpie counts as a divergence.
        """
        try:
            with self._lock:
                density, gradient = self._density(parameters.astype(self._dtype))
        except self._no_density:
            return np.nan, np.zeros(parameters.shape)
        return float(density) if np.isfinite(gradient).all() else np.nan, np.asarray(gradient, "float64")

    def expand(self, parameters: HostArray) -> dict[str, HostArray]:
        with self._lock:
            values = self._stored(parameters.astype(self._dtype))
        return {name: np.asarray(value, "float64") for name, value in zip(self._names, values, strict=True)}
