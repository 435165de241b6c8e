"""Finds kernels that were not run: compares the kernels of all classes of ops with the recorded launches."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import ModuleType

from memcheck.case import Run
from memcheck.launches import Named, class_name
from memcheck.records import Result
from optdb.opencl.kernel_ops import OpenCLKernelBase
from optdb.opencl.ops.shell import Shell

#: Methods that base classes declare, but do not implement.
_LEFT_TO_CHILDREN = (OpenCLKernelBase.run, OpenCLKernelBase.gpu_kernels, Shell.operation)


def op_classes(package: str) -> list[str]:
    """Return the full names of all op classes that have kernels and are defined in a package or a module.

    Classes that leave `run`, `gpu_kernels` or `operation` to their subclasses are excluded, and so are classes whose
    names begin with an underscore.
    """
    _import_all(importlib.import_module(package))
    there = {
        class_name(op_class)
        for op_class in _descendants(OpenCLKernelBase)
        if f"{op_class.__module__}.".startswith(f"{package}.") and _is_complete(op_class)
    }
    return sorted(there)


def gaps(
    classes: Iterable[str],
    results: Iterable[Result],
    device_kinds: Iterable[str],
    never: Mapping[Named, str],
    shared: tuple[str, ...] = (),
) -> list[str]:
    """Return a message for each kernel of the given classes that was not run for one of the given kinds of devices.

    `never` maps kernels that their ops never launch to reasons. A message is also returned if such a kernel is launched
    after all, or if no case declares it. If the name of a kernel begins with a prefix in `shared`, one launch by any op
    is enough.
    """
    results = list(results)
    left_out = {(owner, name) for owner in classes for its_owner, name in never if short_name(owner) == its_owner}
    found = [gap for device_kind in device_kinds for gap in _gaps(classes, results, device_kind, left_out, shared)]
    return [*found, *_stale(results, never)]


def needed_runs(results: Iterable[Result], first: Iterable[Run]) -> list[str]:
    """Return a small set of runs that launch all kernels that the runs in `first` do not launch."""
    always = set(map(str, first))
    launches: dict[str, set[tuple[str, Named]]] = {}
    cost: dict[str, float] = {}
    known: set[tuple[str, Named]] = set()
    for result in results:
        launched = {(result.device_kind, named) for named in result.launched}
        if result.run in always:
            known |= launched
        else:
            launches.setdefault(result.run, set()).update(launched)
            cost[result.run] = cost.get(result.run, 0) + result.seconds
    missing = set().union(*launches.values()) - known
    chosen: list[str] = []
    while missing:
        chosen.append(max(launches, key=lambda run: (len(launches[run] & missing), -cost[run])))
        missing -= launches[chosen[-1]]
    return sorted(chosen)


def _stale(results: Iterable[Result], never: Mapping[Named, str]) -> Iterator[str]:
    declared = {(short_name(owner), name) for result in results for owner, name in result.declared}
    launched = {(short_name(owner), name) for result in results for owner, name in result.launched}
    for owner, name in never:
        if (owner, name) in launched:
            yield f"{owner}: its kernel {name} is launched, although it is in NEVER"
        elif (owner, name) not in declared:
            yield f"{owner}: no case declares its kernel {name}, which is in NEVER"


def short_name(owner: str) -> str:
    """Return the name of a class without its module."""
    return owner.rpartition(".")[2]


def _gaps(
    classes: Iterable[str],
    results: Iterable[Result],
    device_kind: str,
    left_out: Collection[Named],
    shared: tuple[str, ...],
) -> Iterator[str]:
    here = [result for result in results if result.device_kind == device_kind]
    declared = {named for result in here for named in result.declared}
    launched = {named for result in here for named in result.launched}
    by_any = {name for _, name in launched if name.startswith(shared)}
    for owner in classes:
        names = {name for its_owner, name in declared if its_owner == owner}
        if not names:
            yield f"{owner} has no case for kind {device_kind}"
        for name in sorted(names):
            if (owner, name) not in {*launched, *left_out} and name not in by_any:
                yield f"{owner}: no case launches its kernel {name} for kind {device_kind}"


def _import_all(module: ModuleType) -> None:
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{module.__name__}."):
        importlib.import_module(found.name)


def _descendants(op_class: type) -> Iterator[type]:
    for child in op_class.__subclasses__():
        yield child
        yield from _descendants(child)


def _is_complete(op_class: type) -> bool:
    own = not op_class.__name__.startswith("_")
    return own and not any(getattr(op_class, method.__name__, None) is method for method in _LEFT_TO_CHILDREN)
