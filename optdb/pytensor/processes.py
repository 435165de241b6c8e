"""Makes PyMC spawn processes if functions run on a device, because OpenCL does not work in forked processes.

PyMC does the same for its mode JAX, in `pymc.sampling.parallel`.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from multiprocessing.context import BaseContext
from types import ModuleType
from typing import Any

from pytensor.compile.mode import get_mode

from optdb.main_guard import check_script

_CONTEXT = "_initialize_multiprocessing_context"
_DEED = "samples in several processes, which are spawned for mode OPENCL"


def install(linker_class: type) -> None:
    """Make PyMC spawn processes instead of forking for modes whose linker is an instance of `linker_class`."""
    replacements: dict[str, Callable[[ModuleType], None]] = {
        "pymc.sampling.parallel": functools.partial(_replace_context, linker_class),
        "pymc.sampling.population": functools.partial(_replace_stepper, linker_class),
    }
    for name in replacements.keys() & sys.modules.keys():
        replacements.pop(name)(sys.modules[name])
    if replacements:
        sys.meta_path.insert(0, _Finder(replacements))


class _Finder(MetaPathFinder):
    """Passes a module to a function as soon as the module is imported."""

    def __init__(self, functions: dict[str, Callable[[ModuleType], None]]) -> None:
        self._functions = functions

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._functions:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                replace = self._functions.pop(module.__name__, None)
                if replace is not None:
                    replace(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _replace_stepper(linker_class: type, module: ModuleType) -> None:
    """Make PyMC advance populations of chains in one process if functions run on a device."""
    original = module.PopulationStepper.__init__

    @functools.wraps(original)
    def make(self: Any, steppers: Sequence[Any], parallelize: bool) -> None:
        original(self, steppers, parallelize and not any(_linked_by(linker_class, step) for step in steppers))

    module.PopulationStepper.__init__ = make


def _linked_by(linker_class: type, step: Any) -> bool:
    """Return whether a step method or one of its parts holds a function linked by an instance of `linker_class`."""
    values = [value for part in getattr(step, "methods", [step]) for value in vars(part).values()]
    return any(isinstance(getattr(getattr(value, "maker", None), "linker", None), linker_class) for value in values)


def _replace_context(linker_class: type, module: ModuleType) -> None:
    """Replace the function that chooses how processes start, in all PyMC modules that import it."""
    original = getattr(module, _CONTEXT, None)
    if original is None:
        return  # an unknown version of PyMC: if it forks, the error ForkedContext says what to do
    replacement = _with_fresh_processes(original, linker_class)
    for name, other in list(sys.modules.items()):
        if name.startswith("pymc.") and vars(other).get(_CONTEXT) is original:
            setattr(other, _CONTEXT, replacement)


def _with_fresh_processes(original: Callable[..., BaseContext], linker_class: type) -> Callable[..., BaseContext]:
    @functools.wraps(original)
    def choose(mp_ctx: Any = None, **options: Any) -> BaseContext:
        context = original(mp_ctx, **options)
        mode = get_mode(options.get("mode"))
        if isinstance(mp_ctx, BaseContext) or not isinstance(mode.linker, linker_class):
            return context
        method = context.get_start_method()
        if method == "fork" and mp_ctx is None:
            has_server = "forkserver" in multiprocessing.get_all_start_methods()
            method = "forkserver" if has_server else "spawn"
        return _fresh(method)

    return choose


@functools.cache
def _fresh(method: str) -> BaseContext:
    """Return a process context for a start method; it raises an error if the script does not allow that method."""
    made: BaseContext = type("FreshContext", (_Checked, type(multiprocessing.get_context(method))), {})()
    return made


class _Checked:
    """A multiprocessing context that checks the script before it starts a process."""

    def Process(self, *args: Any, **options: Any) -> Any:  # noqa: N802  named as in multiprocessing
        if self.get_start_method() == "fork":  # type: ignore[attr-defined]  # a method of the context's class
            raise ValueError("mp_ctx='fork': OpenCL devices do not work in forked processes. The cure: omit mp_ctx")
        check_script(_DEED, "sample with cores=1")
        return super().Process(*args, **options)  # type: ignore[misc]  # a method of the context's class
