"""optdb's folders import each other only in the listed directions, and kernels do not depend on Theano."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

OPTDB = Path(__file__).resolve().parent.parent / "optdb"

#: Modules directly in optdb that every folder may import: the version, and modules that import only each other.
FOR_ALL = {
    "__version__",
    "callers",
    "collector",
    "files",
    "flags",
    "html_tables",
    "json_text",
    "main_guard",
    "numpy_types",
    "refcounting",
    "trace_log",
    "unknown_names",
    "user_cache",
}

#: Maps each folder to its imports: other folders, and modules that are directly in optdb. No folder imports
#: `composition`, which imports all folders; the host calls it by a callback.
ARROWS = {
    "runtime": set(),
    "codegen": {"runtime"},
    "device": {"codegen", "runtime"},
    "host": set(),
    "cache": {"host"},
    "topo": {"host"},
    "lifters": {"topo", "host"},
    "distributed": {"opencl", "device", "host", "runtime"},
    "pytensor": {"device", "codegen", "runtime", "topo", "host"},
    "opencl": {"lifters", "topo", "host", "device", "codegen", "runtime", "unpickling"},
}


def _name(function):
    """Return the last part of the name in a call expression; None if the called function has no name."""
    return getattr(function, "attr", getattr(function, "id", None))


@functools.cache
def imported(source):
    """Return the full names that a module imports anywhere: at its top, in functions, for type checkers, as strings."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute here"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func) in ("import_module", "__import__"):
            names.update(arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant))
    return names


def parts(names):
    """Return the folders, modules or names directly in optdb to which some full names belong."""
    split = (name.split(".") for name in names)
    return {part[1] if len(part) > 1 else "__init__" for part in split if part[0] == "optdb"}


def modules(folder):
    return [(path, path.read_text()) for path in sorted((OPTDB / folder).rglob("*.py"))]


@pytest.mark.slow_cases("opencl")
@pytest.mark.parametrize("folder", ARROWS)
def test_arrows(folder):
    used = {
        path.relative_to(OPTDB).as_posix(): parts(imported(source)) - FOR_ALL - {folder}
        for path, source in modules(folder)
    }
    wrong = {path: names - ARROWS[folder] for path, names in used.items()}
    assert not {path: names for path, names in wrong.items() if names}
    assert not ARROWS[folder] - set().union(*used.values()), "arrows that no module uses: take them out of ARROWS"


def test_the_page_shows_these_arrows():
    page = (OPTDB.parent / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `optdb/(\w+)/` \|.*\| ([^|]+) \|$", page, re.MULTILINE)
    assert {folder: set(re.findall(r"`(\w+)`", used)) for folder, used in rows} == ARROWS


def test_every_folder_has_arrows():
    folders = {path.parent.name for path in OPTDB.glob("*/__init__.py")}
    assert folders == {*ARROWS, "cli"}


@pytest.mark.parametrize("name", sorted(FOR_ALL - {"__version__"}))
def test_what_every_folder_may_import_imports_nothing_else_of_optdb(name):
    assert parts(imported((OPTDB / f"{name}.py").read_text())) <= FOR_ALL


def test_the_host_alone_imports_theano():
    sources = [(path.relative_to(OPTDB), source) for path, source in modules(".")]
    importing = {path for path, source in sources if "theano" in {name.split(".")[0] for name in imported(source)}}
    assert {path.parts[0] for path in importing} == {"host"}, sorted(map(str, importing))


def _imports_of_modules(run=lambda source: source):
    """Map each module of optdb to the modules that it imports; `run` returns the part of a source to inspect.

    `composition`, which connects all folders, is omitted, and so are the modules that start it.
    """
    sources = {".".join(path.relative_to(OPTDB.parent).with_suffix("").parts): source for path, source in modules(".")}
    sources = {name.removesuffix(".__init__"): source for name, source in sources.items()}
    kept = sources.keys() - {"optdb", "optdb.__main__", "optdb.composition"}
    return {name: {_module_of(full, kept) for full in imported(run(sources[name]))} - {None, name} for name in kept}


def _run(source):
    """Return a module's source without the imports that are only for type checkers."""
    if not re.search(r"^if TYPE_CHECKING:", source, re.MULTILINE):
        return source
    lines = source.splitlines(keepends=True)
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            del lines[node.lineno - 1 : node.end_lineno]
    return "".join(lines)


def _module_of(full, names):
    """Return the module that has the full name or defines it; None if this module is not in `names`."""
    parents = [full, full.rpartition(".")[0]]
    return next((name for name in parents if name in names), None)


def _circle(imports):
    """Return the modules that are on import cycles or between two cycles; without cycles, the list is empty."""
    left = dict(imports)
    while True:
        wanted = set().union(*left.values())
        ends = [name for name, others in left.items() if name not in wanted or not others & left.keys()]
        if not ends:
            return sorted(left)
        for name in ends:
            del left[name]


def test_no_imports_in_functions_close_a_circle():
    imports = _imports_of_modules(_run)
    assert len(imports) > 300
    assert not _circle(imports)


def test_imports_for_type_checkers_close_circles_in_the_simulator_alone():
    """Simulator modules may form cycles: a method refers to its simulator, a zero-copy scope to its executable."""
    left = _circle(_imports_of_modules())
    assert all(name.startswith("optdb.opencl.simulator.") for name in left), left


def test_circles_of_imports_are_found():
    assert _circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert _circle({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == ["b", "c"]
    assert imported(_run("if TYPE_CHECKING:\n    import a\ndef f():\n    import b")) == {"b"}


#: The only entries that these folders may have, so that they keep names from which one can guess the content.
ROOMS = {
    "host": {"__init__.py", "api", "pytensor", "stack_traces.py", "theano"},
    "host/theano": {"__init__.py", "clinker", "functions", "importing", "rewriters", "speedups", "vectorized"},
    "opencl/simulator": {
        *("__init__.py", "simulator.py", "device_function.py", "packing.py", "pieces.py"),
        *("diagnostics", "execution"),
    },
}


@pytest.mark.parametrize("folder", ROOMS)
def test_rooms(folder):
    entries = {path.name for path in (OPTDB / folder).iterdir() if path.name != "__pycache__"}
    assert entries == ROOMS[folder]


@pytest.mark.parametrize("folder", ["topo", "cache", "lifters"])
def test_the_device_neutral_folders_know_only_the_hosts_vocabulary(folder):
    for path, source in modules(folder):
        of_host = {name for name in imported(source) if name.startswith("optdb.host.")}
        others = {name for name in of_host if not name.startswith("optdb.host.api.")}
        assert not others - {"optdb.host.api", "optdb.host.import_host", "optdb.host.refuse_pytensor"}, path


def test_the_page_for_new_hosts_lists_the_vocabulary():
    page = (OPTDB.parent / "docs" / "howto-add-a-host.md").read_text()
    listed = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page, re.MULTILINE)
    names = [name for names in listed for name in re.findall(r"\w+", names)]
    assert sorted(names) == sorted(path.stem for path in (OPTDB / "host" / "api").glob("[a-z]*.py"))


def test_kernel_text_is_in_codegen_alone():
    """Only codegen contains the source of kernels, except for examples in the kit for handwritten ops."""
    texts = ("KERNEL void", "kernel void", "GLOBAL_MEM", "get_global_id", '.cl")')
    for folder in ("opencl", "lifters", "distributed"):
        for path, source in modules(folder):
            if "kernel_ops" not in path.relative_to(OPTDB).parts:
                assert not [text for text in texts if text in source], path
    outside = [path for path in OPTDB.rglob("*.cl") if "codegen" not in path.relative_to(OPTDB).parts]
    assert not outside


#: Modules that inspect a function's parameters, with the reason why no patch can change the result. Classes are not
#: inspected, because a metaclass, or a wrapped constructor such as the op cache's, hides the parameters.
ASKS_FOR_PARAMETERS = {
    "cache/frozen.py": "the code of a function tells it from others",
    "host/theano/clinker/probing.py": "a function of Theano's, as it is when the patch that wraps it is made",
    "host/theano/importing/compat/modules/_small_modules.py": "replaces a function that Python has removed",
    "host/api/identity.py": "compares the code of methods that Theano generates",
    "host/api/rewriters.py": "a function that the user passes",
    "opencl/kernel_ops/base.py": "a method as its class defines it",
}
_ASKING = {"signature", "getfullargspec", "getargspec", "getcallargs", "__code__", "__signature__", "co_varnames"}


def _asks_for_parameters(source):
    """Return whether a module's source inspects the parameters or the code of functions or classes."""
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and _asks(node)
        for node in ast.walk(ast.parse(source))
    )


def _asks(node):
    if node.attr == "signature":
        return ast.unparse(node) == "inspect.signature"
    return node.attr in _ASKING


def test_no_class_is_asked_for_its_parameters():
    asking = {
        path.relative_to(OPTDB).as_posix()
        for folder in [*ARROWS, "cli"]
        for path, source in modules(folder)
        if _asks_for_parameters(source)
    }
    assert asking == set(ASKS_FOR_PARAMETERS)


def test_questions_for_parameters_are_found():
    assert _asks_for_parameters("import inspect\ninspect.signature(cls)")
    assert _asks_for_parameters("names = function.__code__.co_varnames")
    assert not _asks_for_parameters("constant.signature()")


def test_imports_are_found():
    source = """
import theano.tensor
import optdb
def f():
    from optdb.host.api import graph
    from optdb import cache, flags
    importlib.import_module("optdb.opencl")
    importlib.import_module(f"optdb.{name}")
"""
    found = {"theano.tensor", "optdb", "optdb.host.api.graph", "optdb.cache", "optdb.flags", "optdb.opencl"}
    assert imported(source) == found
    assert parts(found) == {"__init__", "host", "cache", "flags", "opencl"}
