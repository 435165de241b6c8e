"""Runs suite files with stock and with the engine, several at a time, and compares the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace

from conformance.baseline import Baseline
from conformance.compare import BASELINE, Comparison, compare
from conformance.records import PASSED, SKIPPED, Result
from conformance.runner import Settings, run_file
from conformance.ways import STOCK


@dataclass(frozen=True)
class Judge:
    """Runs suite files in one way (see `WAYS`) and with stock, and compares the results.

    `expected` maps ids of tests that may fail with the engine to reasons. With `confirm`, each suspected regression
    runs again before it counts as a regression. With `lean`, stock only runs the tests that neither passed nor were
    skipped with the engine. All other tests are assumed to have the same results with stock.
    """

    settings: Settings
    baseline: Baseline
    way: str
    expected: Mapping[str, str]
    confirm: bool = True
    lean: bool = False

    def one(self, path: str) -> Comparison:
        """Run a suite file in the way and with stock, and compare the results."""
        if self.lean:
            engine = run_file(self.settings, path, self.way)
            stock = {**engine, **self._stock_where_it_matters(path, engine)}
        else:
            stock = self.baseline.results(path)
            engine = run_file(self.settings, path, self.way)
        if self.settings.select:
            stock = {name: result for name, result in stock.items() if name in engine}
        return compare(path, stock, engine, self.expected, self.way, self._alone if self.confirm else None)

    def all(self, paths: Iterable[str], jobs: int) -> Iterator[Comparison]:
        """Run suite files, `jobs` at a time, and yield each comparison as soon as it is complete."""
        # Start long files first, so that no long file still runs when all other files have finished.
        longest_first = sorted(paths, key=self.baseline.cost, reverse=True)
        pool = ThreadPoolExecutor(jobs)
        try:
            for future in as_completed([pool.submit(self.one, path) for path in longest_first]):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _stock_where_it_matters(self, path: str, engine: Mapping[str, Result]) -> dict[str, Result]:
        failed = {result.test for result in engine.values() if result.outcome not in (PASSED, SKIPPED)}
        return run_file(self.baseline.settings, path, STOCK, sorted(failed)) if failed else {}

    def _alone(self, test: str, way: str) -> dict[str, Result]:
        path = test.split("::")[0]
        if way == BASELINE:
            return run_file(self.baseline.settings, path, STOCK, [test])
        return run_file(replace(self.settings, select=""), path, way, [test])
