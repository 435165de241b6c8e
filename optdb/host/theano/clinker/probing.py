"""Caches Theano's queries of the compiler, and records the times and errors of Theano's own compilations.

Theano queries the compiler when it declares its flags, before it compiles the first module, and when it tests an op or
a library with a trial program.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from optdb import trace_log
from optdb.host.api.patching import around
from optdb.host.theano.clinker.toolchain import toolchain
from optdb.host.theano.importing.compat import ccode
from optdb.host.theano.importing.support import naming_compiler


@contextmanager
def remember_queries() -> Iterator[None]:
    """Cache the output of compilers that Theano starts in the block."""
    from theano.misc import windows

    call, output = windows.call_subprocess_Popen, windows.output_subprocess_Popen
    windows.call_subprocess_Popen = _remembering(call)
    windows.output_subprocess_Popen = _remembering_output(output)
    try:
        yield
    finally:
        windows.call_subprocess_Popen, windows.output_subprocess_Popen = call, output


@around
def _remembering(call: Callable[..., int], command: list[str], **options: Any) -> int:
    if options or not isinstance(command, list):
        return call(command, **options)
    return toolchain(command[0]).answer(["status", *command], lambda: call(command))


def _remembering_output(output: Callable[..., tuple[bytes, bytes, int]]) -> Callable[..., tuple[bytes, bytes, int]]:
    def ask(command: list[str]) -> list[Any]:
        out, err, status = output(command)
        return [out.decode("latin-1"), err.decode("latin-1"), status]

    @functools.wraps(output)
    def remembered(command: list[str], **options: Any) -> tuple[bytes, bytes, int]:
        if options or not isinstance(command, list):
            return output(command, **options)
        out, err, status = toolchain(command[0]).answer(["output", *command], lambda: ask(command))
        return out.encode("latin-1"), err.encode("latin-1"), status

    return remembered


def remember_trials(cmodule: ModuleType) -> None:
    """Cache the results of the trial programs that the compiler class in ``theano.gof.cmodule`` runs."""
    compiler = cmodule.GCC_compiler
    compiler.compile_args = staticmethod(_remembering_march(cmodule, compiler.compile_args))
    # In Theano, both methods are class methods and are called only on GCC_compiler.
    compiler.try_compile_tmp = classmethod(_remembering_trial(cmodule, compiler.try_compile_tmp.__func__))
    compiler.try_flags = classmethod(_remembering_trial(cmodule, compiler.try_flags.__func__))


def _remembering_march(cmodule: ModuleType, compile_args: Callable[..., list[str]]) -> Callable[..., list[str]]:
    @functools.wraps(compile_args)
    def remembered(march_flags: bool = True) -> list[str]:
        config, compiler = cmodule.config, cmodule.GCC_compiler
        if march_flags and compiler.march_flags is None:

            def find() -> list[str] | None:
                compile_args(march_flags)
                return compiler.march_flags

            question = ["march", config.cxx, _machine_flags(config.gcc.cxxflags), cmodule.std_lib_dirs()]
            compiler.march_flags = toolchain(config.cxx).answer(question, find)
        return compile_args(march_flags)

    return remembered


def _machine_flags(cxxflags: str) -> list[str]:
    """Return the user's flags that select a processor, without the flags that PyMC3 adds on import."""
    return [flag for flag in cxxflags.split() if flag.lstrip("-").startswith("m")]


def _remembering_trial(cmodule: ModuleType, trial: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(trial)

    @functools.wraps(trial)
    def remembered(cls: Any, *args: Any, **options: Any) -> Any:
        bound = signature.bind(cls, *args, **options)
        bound.apply_defaults()
        arguments = {
            name: _plain(value) for name, value in bound.arguments.items() if name not in ("cls", "tmp_prefix")
        }
        if arguments["output"] or not cmodule.config.cxx:
            return trial(cls, *args, **options)
        flags = [*arguments.get("flags", ()), *arguments.get("flag_list", ())]
        flags += ccode.without_header(cls.compile_args()) if arguments["comp_args"] else []
        compiler = toolchain(cmodule.config.cxx)
        question = [trial.__name__, sorted(arguments.items()), flags, compiler.library_stamps(flags)]
        answer = compiler.answer(question, lambda: trial(cls, *args, **options))
        return tuple(answer) if isinstance(answer, list) else answer

    return remembered


def watch_compiler(cmodule: ModuleType) -> None:
    """Time each module that Theano's compiler class compiles; if compilation fails, name the cause in the error."""
    compile_str = cmodule.GCC_compiler.compile_str

    @functools.wraps(compile_str)
    def watched(module_name: str, *args: Any, **options: Any) -> Any:
        with (
            trace_log.compiler_run("C compiler", lambda: f"1 module: {module_name}"),
            naming_compiler(cmodule.config.cxx),
        ):
            return compile_str(module_name, *args, **options)

    cmodule.GCC_compiler.compile_str = staticmethod(watched)


def _plain(value: Any) -> Any:
    """Convert an argument to types that JSON can represent."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return list(value) if isinstance(value, tuple) else value
