"""Ops whose kernels are in a separate file.

The file declares each kernel's name and parameters, and contains its code::

    #section kernels

    #kernel eye : *, size, size, ssize : GA_USE_DOUBLE
    KERNEL void eye(GLOBAL_MEM DTYPE_OUTPUT_0 *a, ga_size a_off, ...) {...}

A parameter is the name of a dtype, ``*`` for an array, ``buffer``, ``local``, ``size`` or ``ssize``. An array is passed
as a pointer and an offset in bytes. If the kernel's code has no parameters for offsets, as in files written for
Theano's GPU back-end, ``*`` is only a pointer, like ``buffer``. The flags after the second colon are optional and
separated by '|'. The section ``kernels`` is one program, so all kernels can use the code above the first kernel.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from optdb.codegen.kernels.kernel import Kernel
from optdb.codegen.kernels.params import KernelArgumentError
from optdb.codegen.kernels.prelude import ctype
from optdb.codegen.source import load_w, work_dtype, write_w
from optdb.host.api.graph import Apply
from optdb.opencl.kernel_ops.base import OpenCLKernelBase

_SECTION = re.compile(r"\s*#\s*section\s+(\w+)\s*$")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(r"\s*#\s*kernel\b(.*)$")

#: Maps the prefix of each macro that describes a variable to a function that returns the macro's definition for a
#: dtype.
_MACROS = {"DTYPE": ctype, "WORK": lambda dtype: ctype(work_dtype(dtype)), "LOAD": load_w, "WRITE": write_w}
#: Other sections in kernel files for Theano's GPU back-end, which are not supported here.
C_SECTIONS = (
    *("init_code", "init_code_apply", "init_code_struct", "support_code", "support_code_apply", "support_code_struct"),
    *("cleanup_code_struct", "code", "code_cleanup"),
)


class KernelFileError(ValueError):
    """Raised if a kernel file cannot be parsed. The error message names the line and says what is expected there."""


def parse(text: str, path: str = "the kernel file") -> list[Kernel]:
    """Return the kernels in a file; the source of each kernel is the whole file."""
    declared: list[tuple[int, str]] = []
    code: list[str] = []
    section = None
    for number, line in enumerate(text.splitlines(), 1):
        section_here, kernel_here = _SECTION.match(line), _KERNEL.match(line)
        if section_here:
            section = section_here[1]
            if section != "kernels":
                raise KernelFileError(f"{path}:{number}: {_no_section(section)}")
        elif section is None and line.strip():
            raise KernelFileError(f"{path}:{number}: the file must begin with '#section kernels'")
        elif kernel_here:
            declared.append((number, kernel_here[1]))
        code.append("" if section_here or kernel_here else line)
    if not declared:
        raise KernelFileError(f"{path} declares no kernel: '#kernel name : *, size, float32 : flags' before its code")
    return [_declared("\n".join(code), text, f"{path}:{number}") for number, text in declared]


def definitions(node: Apply) -> list[tuple[str, str]]:
    """Return the macros that describe a node's variables to the code in a file.

    For each input, and likewise for each output, ``DTYPE_INPUT_0`` is its type, ``WORK_INPUT_0`` is the type for
    computations, and ``LOAD_INPUT_0(x)`` and ``WRITE_INPUT_0(x)`` convert values when they are read and stored.
    """
    variables = [(f"INPUT_{i}", var) for i, var in enumerate(node.inputs)]
    variables += [(f"OUTPUT_{i}", var) for i, var in enumerate(node.outputs)]
    dtypes = [(which, var.type.dtype) for which, var in variables if getattr(var.type, "dtype", None) is not None]
    return [(f"{word}_{which}", text(dtype)) for which, dtype in dtypes for word, text in _MACROS.items()]


class OpenCLKernelFileBase(OpenCLKernelBase):
    """An op that launches kernels from a file. Subclasses define ``make_node`` and ``run``.

    Parameters
    ----------
    path : str or Path
        The file; a relative path is relative to the directory of the file that defines the op's ``run``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        # Keep the text in the op, so that a pickled op runs without the file.
        self.text = self._find().read_text()
        parse(self.text, self.path)

    def get_op_params(self) -> Iterable[tuple[str, Any]]:
        """Return the names and values of macros to define in addition to `definitions`."""
        return []

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        macros = [*definitions(node), *self.get_op_params()]
        defined = "".join(f"#define {macro} {value}\n" for macro, value in macros)
        flags = Kernel.get_flags(*(var.type.dtype for var in node.outputs))
        return [
            Kernel(defined + kernel.code, kernel.name, kernel.params, dict.fromkeys((*kernel.flags, *flags)))
            for kernel in parse(self.text, self.path)
        ]

    def _find(self) -> Path:
        path = Path(self.path)
        if not path.is_absolute():
            path = Path(inspect.getfile(type(self).run)).parent / path
        if not path.is_file():
            raise FileNotFoundError(f"{type(self).__name__} has its kernels in {path}, which does not exist")
        return path


def _declared(code: str, declaration: str, where: str) -> Kernel:
    parts = [part.strip() for part in declaration.split(":")]
    if len(parts) not in (2, 3) or not parts[0]:
        raise KernelFileError(f"{where}: a kernel is declared as '#kernel name : params : flags', not {declaration!r}")
    name, params, flags = (*parts, "")[:3]
    words = [word.strip() for word in params.split(",")] if params else []
    if _parameters_of(name, code) == len(words):
        # Each word is one parameter, so '*' is a pointer without an offset.
        words = ["buffer" if word == "*" else word for word in words]
    try:
        return Kernel(code, name, words, flags)
    except (KernelArgumentError, ValueError) as error:
        raise KernelFileError(f"{where}: {error}") from None


def _parameters_of(name: str, code: str) -> int | None:
    """Return the number of parameters in a kernel's definition; None if the code does not define it."""
    code = _COMMENT.sub(" ", code)
    start = re.search(rf"\b(?:KERNEL|OUTLINED_KERNEL|kernel|__kernel)\b[^;{{}}()]*\b{re.escape(name)}\s*\(", code)
    if start is None:
        return None
    depth, commas = 1, 0
    for end, char in enumerate(code[start.end() :], start.end()):
        depth += (char == "(") - (char == ")")
        commas += char == "," and depth == 1
        if not depth:
            return commas + 1 if code[start.end() : end].strip() not in ("", "void") else 0
    return None


def _no_section(section: str) -> str:
    if section not in C_SECTIONS:
        return f"unknown section {section!r}; the only one is kernels"
    return (
        f"the section {section!r} is C code for Theano's GPU back-end, which is not supported; only kernels are. "
        "Remove the section, and launch the kernels from the op's method: def run(self, node, inputs, outputs, "
        "kernels, context): kernels['name'].scall(n, ...)"
    )
