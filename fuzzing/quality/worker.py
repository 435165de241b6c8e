"""Compares some models: a process that ``fuzzing.quality`` starts, with its own PYTHONHASHSEED."""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import astuple

from fuzzing.quality.comparing import compare


def main(kind: str, first: int, stop: int) -> None:
    """Compare the models of seeds from `first` to `stop`, and write a line for each."""
    for seed in range(first, stop):
        line = {"kind": kind, "seed": seed}
        try:
            found = compare(kind, seed)
        except Exception:
            line["error"] = traceback.format_exc()[-1500:]
        else:
            line |= {"words": found.words, "fewer": found.fewer, "more": found.more, "is_worse": found.is_worse}
            line |= {"stock": astuple(found.stock), "engine": astuple(found.engine)}
            line["more_of_class"] = found.more_of_class
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
