"""Rewrites the syntax tree of a module of Theano or of a library that uses it (see `libraries`).

`REDIRECTED` redirects imports to the package `modules`. If NumPy promotes by type alone, operators and binary NumPy
functions whose operands may be numbers become calls to functions in `promotion`. Translated code begins with a
statement that adds helper functions to its namespace, so that the code also runs as ``__main__``. Line numbers do not
change.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from optdb.host.theano.importing.compat import libraries, versions
from optdb.host.theano.importing.compat.libraries import Library

HERE = "optdb.host.theano.importing.compat.modules"

#: Maps each replacement in `HERE` to the modules that it replaces; submodules that are not listed are not replaced.
_REPLACED = {
    **{name: (name,) for name in ("collections", "configparser", "copy", "imp", "inspect")},
    **{name: (name,) for name in ("numpy", "numpy.core", "numpy.testing", "pdb", "pkg_resources", "unittest")},
    "distutils": ("distutils", "distutils.spawn", "distutils.sysconfig"),
    "nose": ("nose", "nose.plugins", "nose.plugins.attrib", "nose.plugins.skip", "nose.tools"),
    "numpy.distutils": (
        "numpy.distutils",
        *(f"numpy.distutils.{n}" for n in ("__config__", "misc_util", "system_info")),
    ),
    "numpy.linalg": ("numpy.linalg", "numpy.linalg.linalg"),
    "numpy.nosetester": ("numpy.testing.nosetester",),
    "pickle": ("pickle", "six.moves.cPickle"),
    "scipy_signal": ("scipy.signal.signaltools", "scipy.signal.sigtools"),
}
REDIRECTED = {original: f"{HERE}.{name}" for name, originals in _REPLACED.items() for original in originals}

#: Modules that are slow to import and used by few programs; they are imported on first use.
LAZY = frozenset(["scipy.special", "scipy.stats", "scipy.signal"])

_SCIPY = f"{HERE}.scipy"

#: Maps removed attributes of arrays to their replacements. The translation replaces them for objects of any type,
#: because Theano uses these names only for arrays.
RENAMED = {"tostring": "tobytes"}

RENAMED_IN_TESTS = {
    "assertEquals": "assertEqual",
    "assertNotEquals": "assertNotEqual",
    "assertAlmostEquals": "assertAlmostEqual",
    "assertRaisesRegexp": "assertRaisesRegex",
    "assertRegexpMatches": "assertRegex",
    "assertItemsEqual": "assertCountEqual",
    "failUnless": "assertTrue",
    "failIf": "assertFalse",
    "failUnlessEqual": "assertEqual",
    "failUnlessRaises": "assertRaises",
    "assert_": "assertTrue",
}

BINARY_UFUNCS = frozenset(
    [
        *("add", "subtract", "multiply", "divide", "true_divide", "floor_divide", "remainder", "mod", "fmod"),
        *("power", "float_power", "maximum", "minimum", "fmax", "fmin", "arctan2", "hypot", "logaddexp"),
        *("logaddexp2", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "bitwise_and"),
        *("bitwise_or", "bitwise_xor", "left_shift", "right_shift"),
    ]
)

#: Attributes that are never NumPy numbers; comparisons that involve them are not translated.
_PLAIN_ATTRIBUTES = frozenset(
    ["ndim", "type", "dtype", "owner", "op", "name", "__class__", "broadcastable", "nin", "nout", "inputs", "outputs"]
)

_INTEGERS = frozenset([f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)])
#: Names of variables in which Theano stores NumPy scalar types.
_SCALAR_TYPES = frozenset(["ctor", "py_type"])

_PLAIN_CALLS = frozenset(
    [
        *("len", "type", "str", "repr", "id", "hash", "tuple", "list", "set", "dict", "frozenset", "sorted"),
        *("range", "isinstance"),
    ]
)


def translate(source: bytes | str, filename: str, promoting: bool, library: Library | None = None) -> ast.Module:
    """Parse and rewrite a module; if `promoting` is true, its operators have the result types of NumPy 1."""
    with ignoring_warnings_of_syntax():
        tree = ast.parse(source, filename)
    tree = _Translator(promoting, library).visit(tree)
    return ast.fix_missing_locations(tree)


@contextlib.contextmanager
def ignoring_warnings_of_syntax() -> Iterator[None]:
    """Suppress warnings from the parser and the compiler about a library's source."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def call_for_helpers(tree: ast.Module, promoting: bool) -> ast.Module:
    """Add a call to `add_helpers` at the beginning of a translated module."""
    call = _CALL.format(__name__, promoting)
    tree.body.insert(_first_statement(tree), ast.parse(call).body[0])
    return tree


def table_digest() -> str:
    """Return a digest of everything that translated code depends on besides its source."""
    tables = (__file__, libraries.__file__)
    return hashlib.sha256(b"".join(Path(table).read_bytes() for table in tables)).hexdigest()[:16]


def add_helpers(namespace: dict[str, Any], promoting: bool) -> None:
    """Add the helper functions of translated code to a module's namespace."""
    namespace.update(_helpers(promoting))


_CALL = "__import__({0!r}, fromlist=['add_helpers']).add_helpers(globals(), {1})"


def _first_statement(tree: ast.Module) -> int:
    """Return the index of the first statement after the docstring and the imports from ``__future__``."""
    for index, statement in enumerate(tree.body):
        is_docstring = index == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_docstring and not (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
            return index
    return len(tree.body)


#: Functions of this package's module `builtins` that translated code calls, in addition to `_Translator.CONVERSIONS`.
_REPLACEMENTS = ("decode", "fill", "format_text", "itemset", "make_dtype", "to_index", "to_scalar")


@functools.cache
def _helpers(promoting: bool) -> dict[str, Callable[..., Any]]:
    from optdb.host.theano.importing.compat import builtins

    functions: dict[str, Callable[..., Any]] = {
        _helper(name): getattr(builtins, name) for name in (*_Translator.CONVERSIONS.values(), *_REPLACEMENTS)
    }
    if promoting:
        from optdb.host.theano.importing.compat import promotion

        functions.update({_helper(name): function for name, function in promotion.OPERATORS.items()})
        functions[_helper("ufunc")] = promotion.call_ufunc
    return functions


def _helper(name: str) -> str:
    return f"__optdb_{name}__"


class _Translator(ast.NodeTransformer):
    #: Maps built-in functions to replacements that accept arrays with one element, or that print NumPy scalars like
    #: Python numbers. With older versions of NumPy, the built-in functions did so themselves.
    CONVERSIONS: ClassVar = {
        "float": "to_float",
        "int": "to_int",
        "complex": "to_complex",
        "bool": "to_bool",
        "repr": "to_repr",
    }

    def __init__(self, promoting: bool, library: Library | None) -> None:
        self.promoting = promoting
        self.library = library
        self.redirected = {**REDIRECTED, **library.redirected} if library else REDIRECTED
        self.lists: frozenset[str] = frozenset()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        outer, self.lists = self.lists, _lists_of(node)
        self.generic_visit(node)
        self.lists = outer
        return node

    # Imports

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for alias in node.names:
            statements += _import(alias, self.redirected)
        return [ast.copy_location(statement, node) for statement in statements]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        if not node.level and node.module in self.redirected:
            node.module = self.redirected[node.module]
        return node

    # Names

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        node.attr = RENAMED.get(node.attr, node.attr)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            node.attr = RENAMED_IN_TESTS.get(node.attr, node.attr)
        return node

    # Operators and calls

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        index = node.slice
        if not isinstance(node.value, ast.Name):
            return node
        if not isinstance(node.ctx, ast.Del) and self._may_be_list(index):
            indexed = ast.copy_location(ast.Name(node.value.id, ast.Load()), node)
            node.slice = _call("to_index", [indexed, index], index)
        return node

    def _may_be_list(self, index: ast.expr) -> bool:
        if isinstance(index, ast.Name):
            return self.library is not None or index.id in self.lists
        return isinstance(index, ast.ListComp)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        name = type(node.op).__name__
        if name == "Mod" and _formats_numbers(node.left):
            return _call("format_text", [node.left, node.right], node)
        if not self.promoting or name == "MatMult" or _is_plain(node.left) or _is_plain(node.right):
            return node
        if _is_number(node.left) and _is_number(node.right):
            return node
        return _call(name, [node.left, node.right], node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        name = f"I{type(node.op).__name__}"
        # Leave augmented assignments to a.b or a[b] unchanged: the translation would evaluate `a` and `b` twice, and an
        # assignment to an element casts the value anyway.
        if not self.promoting or not isinstance(node.target, ast.Name) or name == "IMatMult" or _is_plain(node.value):
            return node
        loaded = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        return ast.copy_location(ast.Assign([node.target], _call(name, [loaded, node.value], node)), node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        name = type(node.ops[0]).__name__
        if not self.promoting or len(node.ops) > 1 or name in ("Is", "IsNot", "In", "NotIn"):
            return node
        if _is_plain(node.left) or _is_plain(node.comparators[0]):
            return node
        return _call(name, [node.left, node.comparators[0]], node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        function = node.func
        if not node.args:
            return node
        if any(isinstance(argument, ast.Starred) for argument in node.args[:2]):
            # For example np.maximum(*operands).
            return self._ufunc_call(node) if self._is_binary_ufunc(function) else node
        if len(node.args) == 1 and not node.keywords:
            if isinstance(function, ast.Name) and function.id in self.CONVERSIONS:
                return _call(self.CONVERSIONS[function.id], node.args, node)
            if self.promoting and _may_be_scalar_type(function):
                return _call("to_scalar", [function, *node.args], node)
        if isinstance(function, ast.Attribute):
            return self._method_call(node, function)
        return node

    def _method_call(self, node: ast.Call, function: ast.Attribute) -> ast.expr:
        if self.library is not None and self.library.decodes_text and function.attr == "decode":
            return _call("decode", [function.value, *node.args], node, node.keywords)
        if ((function.attr == "fill" and len(node.args) == 1) or function.attr == "itemset") and not node.keywords:
            return _call(function.attr, [function.value, *node.args], node)
        if not _is_numpy(function.value):
            return node
        for keyword in node.keywords:
            # A signature of one character specifies a dtype.
            if keyword.arg == "sig" and _is_character(keyword.value):
                keyword.arg = "dtype"
        if function.attr == "dtype":
            return _call("make_dtype", node.args, node, node.keywords)
        if self._is_binary_ufunc(function) and len(node.args) >= 2:
            return self._ufunc_call(node)
        return node

    def _is_binary_ufunc(self, function: ast.expr) -> bool:
        if not (self.promoting and isinstance(function, ast.Attribute) and _is_numpy(function.value)):
            return False
        return function.attr in BINARY_UFUNCS

    def _ufunc_call(self, node: ast.Call) -> ast.expr:
        return _call("ufunc", [node.func, *node.args], node, node.keywords)


def _import(alias: ast.alias, redirected: Mapping[str, str]) -> list[ast.stmt]:
    if alias.name in redirected and (alias.asname or "." not in alias.name):
        return [ast.Import([ast.alias(redirected[alias.name], alias.asname or alias.name)])]
    package = alias.name.partition(".")[0]
    if alias.name == "scipy.linalg.blas" and not alias.asname:
        return [ast.Import([ast.alias(_SCIPY, package)])]
    if alias.name in LAZY and not alias.asname and versions.installed("scipy") >= versions.SCIPY_LAZY:
        return [ast.Import([ast.alias(_SCIPY, package)])]
    if package not in redirected or alias.asname:
        return [ast.Import([alias])]
    # `import numpy.random` binds numpy, so import the submodule, and bind the package's name to the package's
    # replacement.
    import_submodule = ast.Import([ast.alias(redirected.get(alias.name, alias.name), "__optdb_imported__")])
    return [import_submodule, ast.Import([ast.alias(redirected[package], package)])]


def _call(name: str, arguments: list[ast.expr], node: ast.AST, keywords: Sequence[ast.keyword] = ()) -> ast.Call:
    function = ast.copy_location(ast.Name(_helper(name), ast.Load()), node)
    return ast.copy_location(ast.Call(function, arguments, list(keywords)), node)


def _lists_of(function: ast.FunctionDef) -> frozenset[str]:
    """Return the names to which a function assigns list expressions, such as ``[None] * n``."""
    return frozenset(
        target.id
        for statement in ast.walk(function)
        if isinstance(statement, ast.Assign) and _is_list(statement.value)
        for target in statement.targets
        if isinstance(target, ast.Name)
    )


def _is_list(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Mult) and (_is_list(node.left) or _is_list(node.right))
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "list"
    return isinstance(node, ast.List | ast.ListComp)


def _formats_numbers(node: ast.expr) -> bool:
    """Return whether an expression is a format string for numbers or for repr()."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return False
    return re.search(r"%[-+ #0]*[\d*]*(\.\d+)?[diouxXeEfFgGr]", node.value) is not None


def _may_be_scalar_type(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "getattr" and _is_numpy(node.args[0])
    if isinstance(node, ast.Name):
        return node.id in _SCALAR_TYPES
    return isinstance(node, ast.Attribute) and (
        node.attr in _SCALAR_TYPES or (_is_numpy(node.value) and node.attr in _INTEGERS)
    )


def _is_numpy(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("np", "numpy")


def _is_character(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and len(node.value) == 1


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float | complex)


def _is_plain(node: ast.expr) -> bool:
    """Return whether an operand cannot be a number."""
    if isinstance(node, ast.Constant):
        return not isinstance(node.value, int | float | complex) or isinstance(node.value, bool)
    if isinstance(node, ast.Attribute):
        return node.attr in _PLAIN_ATTRIBUTES
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _PLAIN_CALLS
    return isinstance(node, ast.Tuple | ast.List | ast.Dict | ast.Set | ast.JoinedStr | ast.ListComp | ast.Lambda)
