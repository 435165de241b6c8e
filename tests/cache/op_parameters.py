"""Finds parameter sets for every op class of Theano that has ``__props__``.

The name of a constructor parameter suggests some values for it. Each parameter is varied alone, while the others keep
their first value. Combinations that a constructor rejects are omitted.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from pathlib import Path

import theano
import theano.scalar as ts
import theano.tensor as tt

from optdb.host.api.graph import op_classes

#: Modules with these parts in their names have no ops, or are programs that should not be imported.
NOT_MODULES = (".tests", ".misc", ".setup", ".bin", "sandbox.cuda", "sandbox.gpuarray")

_MODES = (
    *("valid", "max", "sum", "average_inc_pad", "average_exc_pad", "add", "mul", "raise", "wrap", "clip"),
    *("per-activation", "spatial", "reduced", "complete", "r", "instance", "channel", "ignore_borders"),
)

_EITHER = (False, True, 1)

SUGGESTED = {
    "A_structure": ("general", "lower_triangular", "symmetric"),
    "UPLO": ("L", "U"),
    "acc_dtype": (None, "float64", "float32"),
    "algo": ("small", "fast", "none", "guess_once", None),
    "attrs": (("__str__",), ("shape", "min")),
    "axes": ((0,), (0, 1), None),
    "axis": (None, 0, 1, -1, (0,), (0, 1), True),
    "axis1": (0, 1),
    "axis2": (1, 2),
    "border_mode": ("valid", "half", "full", (1, 1), (1, 1, 1)),
    "broadcastable": ((False,), (True,)),
    "clip_lower_bound": (0, 0.0, -0.0, -1.5, float("nan")),
    "clip_upper_bound": (1, 1.0, True, 2.5),
    "context_name": (None, "dev0", "dev1"),
    "conv_mode": ("conv", "cross"),
    "convdim": (2, 3),
    "dest": (0, 1),
    "destructive": _EITHER,
    "direction_mode": ("unidirectional", "bidirectional"),
    "dtype": ("float64", "float32", "int64", None),
    "exc": (NotImplementedError, ValueError),
    "filter_dilation": ((1, 1), (2, 2), (1, 1, 1), (2, 1, 1)),
    "dilation": ((1, 1), (2, 2)),
    "fn": ("uniform", "normal"),
    "format": ("csc", "csr"),
    "global_fn": (print, repr),
    "grad_c": (True, False),
    "grad_h": (True, False),
    "i": (0, 1, 2),
    "ignore_border": _EITHER,
    "inplace": _EITHER,
    "idx_dtype": ("int64", "int32"),
    "idx_list": (
        (slice(None, None, None),),
        (ts.int64,),
        (slice(ts.int64, None, None),),
        (slice(None, None, ts.int64),),
    ),
    "imshp": (None, (None, 3, 8, 8), (2, 3, 8, 8)),
    "ind": (1, 2),
    "inplace_pattern": (None, {0: 0}, {0: 1}),
    "input_broadcastable": ((False,), (True,), (False, True)),
    "kind": ("quicksort", "mergesort"),
    "kmap": (None,),
    "kshp": (None, (4, 3, 2, 2)),
    "len_splits": (2, 3),
    "message": ("", "so"),
    "mmap_mode": (None, "c"),
    "mode": _MODES,
    "msg": ("", "no"),
    "multiplier": (1, 1.0, True, 2.5, float("nan")),
    "name": (None, "a", "b"),
    "ndim": (2, 1, 3),
    "ndim_added": (0, 1),
    "new_order": ((0, "x"), ("x", 0), (0,), (), (1, 0)),
    "nfunc_spec": (None, ("add", 2, 1)),
    "odtype": ("float32", "float64"),
    "offset": (0, 1, -1),
    "openmp": (None, True, False),
    "order": (None, "C", "F"),
    "out_type": ("float64", "float32"),
    "outdim": (1, 2),
    "output_type": (tt.fvector, tt.dvector),
    "outtype": (tt.fvector, tt.dvector),
    "pad": ((0, 0), (1, 1)),
    "pre_scalar_op": (None, ts.sqr),
    "precision": ("float32", "float64"),
    "red_op": ("add", "mul"),
    "reduce_mask": (None, (1, 0)),
    "return_indices": _EITHER,
    "rnn_mode": ("lstm", "gru"),
    "rtype": (theano.gof.type.CDataType("void*", "free"), theano.gof.type.CDataType("int*", "free")),
    "scalar_op": (ts.add, ts.mul, ts.maximum),
    "shape": ((2,), (3, 4)),
    "side": ("left", "right"),
    "source": (0, 1),
    "stride": ((1, 1), (2, 2)),
    "subsample": ((1, 1), (2, 2), (1, 1, 1), (2, 1, 1)),
    "tag": (0, 1),
    "trans": ("N", "T"),
    "val": (0, 1, 1.0),
    "view": (-1, 0, 1),
    "ws": ((1, 1), (2, 2)),
}

#: Classes whose parameter sets are listed here instead of found by trial.
EXPLICIT = {
    "Rebroadcast": [((0, True),), ((0, False),), ((0, True), (1, False)), ((1, True),)],
    "GpuAveragePoolGrad": [(True, "sum"), (False, "sum"), (1, "sum"), (True, "average_inc_pad", 3)],
    "GpuTopKOp": [(-1, False), (0, False), (0, False, "int32")],
    "HStack": [("csc", "float64"), ("csr", "float64"), ("csc", "float32")],
    "MaxAndArgmax": [([0],), ([1],), ([0, 1],), ([False],)],
    "TopKOp": [(-1, False), (0, False), (0, False, "int32"), (0, False, "int64", True, False)],
    "VStack": [("csc", "float64"), ("csr", "float64"), ("csc", "float32")],
    "MultinomialWOReplacementFromUniform": [("float32",), ("float64",)],
    "GPUAMultinomialWOReplacementFromUniform": [("float32",), ("float64",)],
}

#: Classes that are skipped, because their constructors need something that is missing here.
OUT_OF_REACH = {
    "BaseCorr3dMM": "a subclass's direction",
    "BaseCorrMM": "a subclass's direction",
    "ConnectionistTemporalClassification": "Baidu's CTC library",
    "CumprodOp": "an argument, which it hands to object.__new__, which takes none",
    "CumsumOp": "an argument, which it hands to object.__new__, which takes none",
    "GpuConnectionistTemporalClassification": "Baidu's CTC library",
    "GpuCumsumOp": "an argument, which it hands to object.__new__, which takes none",
    "GpuDnnConvDesc": "cuDNN",
    "GpuDnnPoolBase": "a subclass's code file",
    "GpuDnnSoftmaxBase": "a subclass's code file",
    "_RNNDescriptor": "cuDNN",
    "GpuDnnRNNGradInputs": "cuDNN",
    "GpuDnnRNNGradWeights": "cuDNN",
    "GpuDnnRNNOp": "cuDNN",
    "_RNNSplitParams": "cuDNN",
}


def import_all() -> None:
    """Import every module of Theano that can be imported here."""
    root = Path(theano.__file__).parent
    for path in sorted(root.rglob("*.py")):
        name = ".".join(["theano", *path.relative_to(root).with_suffix("").parts]).removesuffix(".__init__")
        if not any(part in name for part in NOT_MODULES):
            # Modules for packages that are not installed may raise any error, including SkipTest.
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def theano_classes() -> list[type]:
    """Return Theano's op classes with ``__props__``, by name."""
    import_all()
    found = [
        cls
        for cls in op_classes()
        if cls.__module__.startswith("theano.") and getattr(cls, "__props__", None) is not None
    ]
    return sorted(found, key=lambda cls: (cls.__module__, cls.__name__))


def _values(parameter: inspect.Parameter) -> list:
    suggested = list(SUGGESTED.get(parameter.name, ()))
    default = parameter.default
    if isinstance(default, bool):
        suggested = [default, not default, int(default)]
    elif isinstance(default, int) and not suggested:
        suggested = [default, default + 1, float(default)]
    if default is not inspect.Parameter.empty:
        suggested.insert(0, default)
    return suggested


def parameter_sets(cls: type) -> list[tuple[tuple, dict]]:
    """Return the ``(args, kwargs)`` pairs that a class's constructor accepts; no two pairs have the same `repr`."""
    if cls.__name__ in EXPLICIT:
        return [(args, {}) for args in EXPLICIT[cls.__name__]]
    named = [
        parameter
        for parameter in list(inspect.signature(cls.__init__).parameters.values())[1:]
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    values = {parameter.name: _values(parameter) for parameter in named}
    required = {p.name for p in named if p.default is inspect.Parameter.empty}
    first = _first_that_works(cls, {name: values[name] for name in required})
    if first is None:
        return []
    sets = [first]
    for name, choices in values.items():
        sets.extend({**first, name: value} for value in choices)
    return [((), kwargs) for kwargs in sets if _works(cls, kwargs)]


def _first_that_works(cls: type, required: dict[str, list]) -> dict | None:
    """Return the first combination of values of the required parameters that the constructor accepts."""
    chosen: list[dict] = [{}]
    for name, choices in required.items():
        chosen = [{**kwargs, name: value} for kwargs in chosen for value in choices]
    return next((kwargs for kwargs in chosen[:500] if _works(cls, kwargs)), None)


def _works(cls: type, kwargs: dict) -> bool:
    try:
        cls(**kwargs)
    except Exception:
        return False
    return True
