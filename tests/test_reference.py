"""In the reference, docstrings of public names describe parameters, results and errors."""

from __future__ import annotations

import inspect
import types

import pytest

import optdb
from optdb.device.futures import Future
from optdb.distributed.data_parallel import StepFuture
from optdb.lifters.explain import Explanation
from optdb.opencl.simulator.device_function import DeviceFunction
from optdb.opencl.simulator.diagnostics.checking import CheckReport
from optdb.opencl.simulator.diagnostics.memory import MemoryReport
from optdb.opencl.simulator.diagnostics.profiling import ProfileReport
from optdb.runtime.devices import DeviceInfo, DeviceList
from optdb.runtime.exported import Exported, LoadedMethod

numpydoc = pytest.importorskip("numpydoc.validate", reason="numpydoc is missing: pip install 'optdb[test]'")

#: Classes that public functions and methods return; users do not construct them.
RETURNED = (
    *(CheckReport, DeviceFunction, DeviceInfo, DeviceList, Explanation, Exported, Future, LoadedMethod),
    *(MemoryReport, ProfileReport, StepFuture),
)
#: The rules of numpydoc that are asserted.
RULES = {
    "GL08": "there is a docstring",
    "SS01": "there is a summary",
    "PR01": "each parameter is documented",
    "PR02": "each documented parameter exists",
    "PR04": "each parameter has a type",
    "PR07": "each parameter has a description",
    "RT01": "the returned value is documented",
    "RT03": "the returned value has a description",
    "YD01": "what is yielded is documented",
}
#: Functions and methods whose errors a caller has to expect, so their docstrings need a section Raises.
RAISING = {
    "optdb.distributed.data_parallel.DataParallel.__call__",
    "optdb.distributed.data_parallel.DataParallel.get",
    "optdb.distributed.data_parallel.DataParallel.run_async",
    "optdb.distributed.data_parallel.DataParallel.save",
    "optdb.distributed.data_parallel.DataParallel.set",
    "optdb.distributed.data_parallel.StepFuture.wait",
    "optdb.lifters.explain.Explanation.picture",
    "optdb.lifters.explain.explain",
    "optdb.lifters.lifter.op_lifter",
    "optdb.opencl.exporting.functions.export",
    "optdb.opencl.simulator.diagnostics.checking.CheckReport.raise_if_different",
    "optdb.opencl.simulator.device_function.DeviceFunction.__call__",
    "optdb.opencl.simulator.device_function.DeviceFunction.call_n_times",
    "optdb.opencl.simulator.device_function.DeviceFunction.check",
    "optdb.opencl.simulator.device_function.DeviceFunction.memory",
    "optdb.opencl.simulator.device_function.DeviceFunction.profile",
    "optdb.opencl.simulator.device_function.DeviceFunction.report",
    "optdb.opencl.simulator.device_function.DeviceFunction.run_async",
    "optdb.device.futures.Future.wait",
    "optdb.opencl.simulator.simulator.SimulatorOCL",
    "optdb.opencl.simulator.simulator.SimulatorOCL.add_method",
    "optdb.opencl.simulator.simulator.SimulatorOCL.export",
    "optdb.opencl.simulator.simulator.SimulatorOCL.get",
    "optdb.opencl.simulator.simulator.SimulatorOCL.reset",
    "optdb.opencl.simulator.simulator.SimulatorOCL.set",
    "optdb.opencl.simulator.simulator.SimulatorOCL.sync_from_theano",
    "optdb.opencl.simulator.simulator.SimulatorOCL.sync_to_theano",
    "optdb.runtime.devices.list_devices",
    "optdb.runtime.exported.model.Exported.__call__",
    "optdb.runtime.exported.model.Exported.get",
    "optdb.runtime.exported.model.Exported.set",
    "optdb.runtime.exported.model.LoadedMethod.__call__",
    "optdb.runtime.exported.model.LoadedMethod.prepare",
    "optdb.runtime.exported.model.LoadedMethod.run",
    "optdb.runtime.exported.model.load",
    "optdb.topo.db.TopoOptDB.register",
    "optdb.topo.plug.mode",
}


def public_objects():
    """Return all public functions and classes, and the classes of their results."""
    values = []
    for name in optdb.__all__:
        value = getattr(optdb, name)
        is_module = isinstance(value, types.ModuleType)
        values += [getattr(value, member) for member in value.__all__] if is_module else [value]
    return list(dict.fromkeys([*filter(callable, values), *RETURNED]))


def members(cls):
    """Yield the names of a class's public methods and properties that optdb defines."""
    for base in cls.__mro__:
        if not base.__module__.startswith("optdb."):
            continue
        for name, value in vars(base).items():
            is_member = inspect.isroutine(value) or isinstance(value, property)
            if is_member and (name == "__call__" or not name.startswith("_")):
                yield f"{base.__module__}.{base.__qualname__}.{name}"


def names():
    """Return the full names of all entries of the reference."""
    found = {}
    for value in public_objects():
        found[f"{value.__module__}.{value.__qualname__}"] = value
        if inspect.isclass(value):
            found |= dict.fromkeys(members(value))
    return found


NAMES = names()


def faults(name):
    """Return descriptions of the parts that a docstring lacks."""
    errors = numpydoc.validate(name)["errors"]
    # Users do not construct objects of these classes, so the reference need not describe constructor parameters.
    exempt = {"PR01"} if NAMES.get(name) in RETURNED else set()
    return [message for code, message in errors if code in RULES and code not in exempt]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_docstrings_are_complete(name):
    assert faults(name) == []


@pytest.mark.parametrize("name", sorted(RAISING))
def test_errors_are_documented(name):
    assert name in NAMES
    assert numpydoc.Validator(numpydoc.get_doc_object(numpydoc.Validator._load_obj(name))).doc["Raises"]


def test_the_list_covers_what_users_call():
    ends = {name.rpartition(".")[2] for name in NAMES}
    assert {"get", "set", "memory", "call_n_times", "add_method", "list_devices", "GraphToGPU", "load"} <= ends


def undocumented(x, n: int) -> int:
    """Return a number.

    Parameters
    ----------
    x
        Anything.
    other : int
        There is no such parameter.
    """
    return n


def test_faults_are_found():
    found = "\n".join(faults(f"{__name__}.undocumented"))
    for fault in ("{'n'} not documented", "Unknown parameters {'other'}", '"x" has no type', "No Returns section"):
        assert fault in found
