"""The checks of ``python -m optdb doctor``, and the table that it prints.

Each check is a function that returns its finding, or raises `CheckFailed` with the problem
and the cure. `CHECKS`, those for Theano, lists a check after those that it depends on. After the first fatal
failure the rest are skipped, because their cures would not help yet.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from optdb.files import check_folder
from optdb.host.theano.importing import activation, blas, support, trials
from optdb.host.theano.importing.compat import libraries, versions
from optdb.runtime.errors import DeviceError


class CheckFailed(Exception):
    """A check failed.

    Parameters
    ----------
    finding : str
        The present state.
    cure : str
        What the user can do.
    fatal : bool
        Whether Theano does not work at all. Otherwise it works, slowly.
    optional : bool
        Whether everything else works without it.
    """

    def __init__(self, finding: str, cure: str, *, fatal: bool = True, optional: bool = False) -> None:
        super().__init__(finding)
        self.finding = finding
        self.cure = cure
        self.fatal = fatal and not optional
        self.mark = OFF if optional else FAIL if fatal else SLOW


def report(checks: Mapping[str, Callable[[], str]]) -> int:
    """Run checks, print a table, and return the process's exit status.

    Parameters
    ----------
    checks : mapping of str to callable
        By the name of what each looks at.

    Returns
    -------
    int
        0 if all required parts work, 1 otherwise.
    """
    table = Table("what", "state", title="optdb: what works here", title_justify="left")
    # Users copy paths and commands: long ones are folded, never truncated.
    table.add_column("found", overflow="fold")
    table.add_column("cure", overflow="fold")
    status = 0
    for name, mark, finding, cure in _with_progress(_results(checks)):
        table.add_row(name, mark, escape(finding), escape(cure))
        if mark == FAIL:
            status = 1
    Console().print(table)
    return status


OK, SLOW, OFF, FAIL, SKIP = "[green]works[/]", "[yellow]slow[/]", "[yellow]off[/]", "[red]fails[/]", "-"

#: A check's name, its mark, its finding and the cure.
_Result = tuple[str, str, str, str]


def _with_progress(results: Iterator[_Result | str]) -> Iterator[_Result]:
    """Yield the results, and show the running check on standard error: a first run compiles C code."""
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print("optdb: checking the installation; the first time, that compiles code for up to a minute")
    with console.status("checking the installation") as status:
        for result in results:
            if isinstance(result, str):
                status.update(f"looking at {escape(result)} (the first time, code is compiled)")
            else:
                yield result


def _results(checks: Mapping[str, Callable[[], str]]) -> Iterator[_Result | str]:
    """Yield each check's name before it runs, and then its result."""
    stop = False
    for name, check in checks.items():
        if stop:
            yield name, SKIP, "", ""
            continue
        yield name
        try:
            yield name, OK, check(), ""
        except CheckFailed as failure:
            yield name, failure.mark, failure.finding, failure.cure
            stop = failure.fatal
        except (support.UnusableCompiledir, support.UnusableCompiler) as error:
            yield name, FAIL, error.finding, error.cure
            stop = True
        except Exception as error:
            # The table shows unexpected errors, too, and the exit status counts them.
            yield name, FAIL, f"{type(error).__name__}: {error}", "unexpected error; please report it"
            stop = True


def _requirement(requirement: support.Requirement) -> Callable[[], str]:
    def check() -> str:
        version = support.found(requirement.name)
        if version is None:
            raise CheckFailed("not installed", requirement.cure)
        if not requirement.admits(version):
            raise CheckFailed(version, requirement.cure)
        return version

    return check


def _theano() -> str:
    return str(trials.location())


def _translation() -> str:
    if not versions.needs_translation():
        some = " and ".join(filter(versions.is_translated, sorted(versions.INDEXING_BY_LISTS)))
        return f"only of {some}" if some else "not needed: Theano's modules run as they are"
    from optdb.host.theano.importing.compat import loader

    types = ", with the result types of NumPy 1" if versions.needs_promotion() else ""
    return f"Theano's modules are translated{types}; kept in {loader.cache_dir()}"


def _libraries() -> str:
    """List the libraries on top of Theano that are installed, and whether their versions are translated."""
    installed = [library for library in libraries.LIBRARIES if library.installed()]
    if not installed:
        return "none of " + ", ".join(library.distribution for library in libraries.LIBRARIES)
    lines = [_describe_library(library) for library in installed]
    others = [library for library in installed if not library.is_supported()]
    if others:
        wanted = " ".join(f'"{library.distribution}{library.supported}"' for library in others)
        cure = f"to use them with Theano: python -m pip install --no-deps {wanted}"
        raise CheckFailed("\n".join(lines), cure, optional=True)
    return "\n".join(lines)


def _describe_library(library: libraries.Library) -> str:
    version = support.found(library.distribution)
    if library.is_supported():
        return f"{library.distribution} {version}: translated as Theano is"
    return f"{library.distribution} {version}: left as it is (optdb supports {library.supported})"


def _activation() -> str:
    if not activation.is_active():
        return "off: programs import optdb, or are run by python -m optdb run (python -m optdb activate turns it on)"
    return f"on: import theano brings optdb ({activation.pth_file()})"


def _compiler() -> str:
    compiler = trials.compiler()
    if compiler is None:
        raise CheckFailed("none", "install g++ (Debian: apt-get install g++)", fatal=False)
    return compiler


def _blas() -> str:
    ldflags = trials.ldflags()
    if not ldflags:
        raise CheckFailed(
            "none: matrix products go through NumPy",
            "install OpenBLAS (Debian: apt-get install libopenblas-dev), or name one: THEANO_FLAGS=blas.ldflags=...",
            fatal=False,
        )
    return ldflags


def _c_code() -> str:
    if trials.compiler() is None:
        return "not used without a compiler"
    try:
        trials.compile_c_code()
    except Exception as error:
        headers = f"apt-get install python{sys.version_info[0]}.{sys.version_info[1]}-dev"
        raise CheckFailed(_first_line(error), f"install Python's headers (Debian: {headers})") from error
    return "compiles"


def _compiler_cost() -> str:
    if trials.compiler() is None:
        return "not used without a compiler"
    from optdb.host.theano.clinker.building import processors, seconds_for_headers

    seconds = seconds_for_headers()
    if not trials.builds_in_batches():
        return f"{seconds:.1f} s for the headers of each module, one after another (optdb.clinker=False)"
    return f"{seconds:.1f} s for the headers, read once for many modules; {processors()} compilers at a time"


SCAN_IN_PYTHON = "runs in Python, which costs loops of small steps several times their time"


def _scan() -> str:
    if trials.compiler() is None:
        raise CheckFailed(SCAN_IN_PYTHON, "install a compiler", fatal=False)
    try:
        version = trials.scan_version()
    except ImportError as error:
        raise CheckFailed(
            f"{SCAN_IN_PYTHON}: {_first_line(error)}", "report this with the compiler's name", fatal=False
        ) from error
    return f"compiles, version {version}"


def _caches() -> str:
    settings = {
        trials.compiledir(): "THEANO_FLAGS=base_compiledir=FOLDER",
        blas.cache_dir(): "export XDG_CACHE_HOME=FOLDER",
    }
    for folder, setting in settings.items():
        try:
            check_folder(folder)
        except OSError as error:
            raise CheckFailed(f"{folder}: {error.strerror}", f"name another folder: {setting}") from error
    return "\n".join(map(str, settings))


def _opencl() -> str:
    try:
        from optdb.runtime import devices

        rows = devices.list_devices()
        best = devices.find("opencl")
    except DeviceError as error:
        problem, _, cure = str(error).partition("\nThe cure: ")
        raise CheckFailed(problem, f"to compute on devices: {cure}", optional=True) from error
    if not any(row.works and not row.profile.quirks.is_memory_checker for row in rows):
        cure = "for the processor, apt-get install pocl-opencl-icd (Debian)"
        raise CheckFailed(f"{best.name.strip()}: a memory checker", f"install a driver; {cure}", fatal=False)
    return "\n".join(f"{row.spec}: {row.name}" for row in rows if row.works)


def _kernel_cache() -> str:
    from optdb.cli.kernels import described, folder

    binaries = folder()
    if binaries.limit:
        try:
            check_folder(binaries.folder)
        except OSError as error:
            has_flags = support.found("Theano") is not None
            setting = "THEANO_FLAGS=optdb.kernel_cache_dir=..." if has_flags else "export XDG_CACHE_HOME=FOLDER"
            raise CheckFailed(
                f"{binaries.folder}: {error.strerror}", f"name another folder: {setting}", fatal=False
            ) from error
    return f"{binaries.folder}\n{described(binaries)}"


def _engine() -> str:
    import optdb

    with optdb.enable():
        got, nodes = trials.run_small_function([1.0, 2.0])
    wanted = [4.0, 16.0]
    if not all(abs(a - b) < 1e-9 for a, b in zip(got, wanted)):
        raise CheckFailed(f"computed {got}, not {wanted}", "run `make test`, and report what fails")
    return f"{nodes} node(s) left of a small function"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]


#: The checks for Theano.
CHECKS: dict[str, Callable[[], str]] = {
    **{requirement.name: _requirement(requirement) for requirement in support.REQUIREMENTS},
    "translation": _translation,
    "activation": _activation,
    "import theano": _theano,
    "compiler": _compiler,
    "BLAS": _blas,
    "C code": _c_code,
    "compile time": _compiler_cost,
    "scan's C code": _scan,
    "cache folders": _caches,
    "engine": _engine,
    "OpenCL": _opencl,
    "kernel cache": _kernel_cache,
    "libraries": _libraries,
}
