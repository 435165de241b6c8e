"""Stores stock Theano's results on disk, with a file of JSON lines for each suite file.

The name of the folder is a hash of all that the results depend on: versions, flags and the time limit. Stock Theano
therefore does not run again after a change of the engine. Even if only some tests of a file are selected (``-k``),
stock Theano runs the whole file.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

from conformance.records import Result
from conformance.runner import Settings, run_file
from conformance.ways import STOCK

#: For each host, the packages whose versions affect the results.
PACKAGES = {
    "theano": ("Theano", "numpy", "scipy", "pytest", "parameterized", "nose"),
    "pytensor": ("pytensor", "numpy", "scipy", "pytest"),
}

#: A program that takes the name of a host, and prints the host's location and the versions of Python and the packages.
ASK = f"""
import json, platform, sys
from importlib import metadata, util
versions = [f"{{name}}={{metadata.version(name)}}" for name in {PACKAGES!r}[sys.argv[1]]]
print(json.dumps([util.find_spec(sys.argv[1]).origin, platform.python_version(), *versions]))
"""


def settings_of(settings: Settings, python: str) -> Settings:
    """Return the same settings for another interpreter and its Theano; raise ValueError if it lacks a package."""
    return replace(settings, python=python, root=Path(_ask(python)[0]).parent.parent, select="")


def _ask(python: str, host: str = "theano") -> list[str]:
    """Return the host's location in an interpreter, the version of Python, and the versions of the packages."""
    done = subprocess.run([python, "-c", ASK, host], capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise ValueError(f"{python} cannot run the suites: {' '.join(last)}")
    return json.loads(done.stdout)


class Baseline:
    """The results of stock Theano for suite files; a file is only run if its results are not in the folder.

    ``select`` in the settings is ignored. If `fresh` is true, files are run again even if their results are in the
    folder.
    """

    def __init__(self, settings: Settings, folder: Path, fresh: bool = False) -> None:
        self.settings = replace(settings, select="")
        self._fresh = fresh
        self._folder = folder / _key(settings)

    def results(self, path: str) -> dict[str, Result]:
        """Return the results of stock Theano for a suite file, by the ids of tests and cases."""
        kept = self._kept(path)
        if kept.exists() and not self._fresh:
            return _read(kept)
        results = run_file(self.settings, path, STOCK)
        self._folder.mkdir(parents=True, exist_ok=True)
        # Write to another file first, because an interrupted baseline must not look complete.
        draft = kept.with_suffix(f".{os.getpid()}")
        draft.write_text("".join(json.dumps(asdict(result)) + "\n" for result in results.values()))
        draft.replace(kept)
        return results

    def cost(self, path: str) -> float:
        """Return the seconds that stock took for a suite file; for a new file, assume a second per kilobyte."""
        kept = self._kept(path)
        if kept.exists():
            return sum(result.seconds for result in _read(kept).values())
        return (self.settings.root / path).stat().st_size / 1000

    def _kept(self, path: str) -> Path:
        return self._folder / f"{path.replace('/', '.')}.jsonl"


def _read(kept: Path) -> dict[str, Result]:
    results = (Result(**json.loads(line)) for line in kept.read_text().splitlines())
    return {result.id: result for result in results}


def _key(settings: Settings) -> str:
    parts = [*_ask(settings.python, settings.host)[1:], str(settings.root), settings.flags, str(settings.timeout)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
