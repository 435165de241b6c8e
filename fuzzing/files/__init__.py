"""Files of plans, altered at random in a way that gets past their digests: each file is refused or runs.

The way of the data::

    corpus ──▶ mutants ────▶ worker ───────▶ runner ─────────▶ report
    sound      one for each  a process with  starts workers,   a table, and the files
    files      number        limits: loads,  sees crashes      that something was wrong with
               of a seed     binds, runs     and hangs

`python -m fuzzing.files --help` says how to run it.
"""
