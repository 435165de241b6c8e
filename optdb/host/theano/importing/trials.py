"""Tests of Theano's parts, for ``python -m optdb doctor``. The first test imports Theano."""

from __future__ import annotations

from pathlib import Path

from optdb.host.theano.importing import support


def location() -> Path:
    """Import Theano, and return its folder."""
    import theano

    return Path(theano.__file__).parent


def compiledir() -> Path:
    """Return the folder of compiled modules."""
    from theano import config

    return Path(config.compiledir)


def compiler() -> str | None:
    """Return the C++ compiler and its version; None if there is none."""
    from theano.configdefaults import config, gcc_version_str

    return f"{config.cxx} {gcc_version_str}" if config.cxx else None


def builds_in_batches() -> bool:
    """Return whether the flag ``optdb.clinker`` allows building C code in batches."""
    from theano import config

    return config.optdb.clinker is not False


def ldflags() -> str:
    """Return the linker flags of the BLAS, or '' if there is none."""
    from theano import config

    return config.blas.ldflags


def compile_c_code() -> None:
    """Compile a function with C code; raise `support.UnusableCompiler` if that fails."""
    import theano
    import theano.tensor as tt

    x = tt.dscalar()
    try:
        theano.function([x], x + 1, mode="FAST_RUN")
    except Exception as error:
        known = support.compiler_error(error, theano.config.cxx)
        if known is None:
            raise
        raise known from error


def scan_version() -> str:
    """Return the version of Scan's C code; raise ImportError if it does not compile."""
    from theano.scan_module import scan_perform_ext

    return str(scan_perform_ext.version)


def changed_flags() -> list[str]:
    """Return the flags of Theano and optdb that the user has set, as ``name=value``."""
    from theano import configparser

    return [
        f"{flag.fullname}={flag.__get__(True, None)}" for flag in configparser._config_var_list if not flag.is_default
    ]


def run_small_function(values: list[float]) -> list[float]:
    """Compile ``(exp(log(x)) * 2) ** 2``; return its results for some values."""
    import theano
    import theano.tensor as tt

    x = tt.dvector()
    f = theano.function([x], (tt.exp(tt.log(x)) * 2) ** 2)
    return f(values).tolist()
