"""Exported plan files, altered at random with valid digests: each file must be rejected or run within its limits.

Data flow::

    corpus ──▶ mutants ────▶ worker ───────▶ runner ─────────▶ report
    sound      one for each  a process with  starts workers,   a table, and the files
    files      number        limits: loads,  sees crashes      that something was wrong with
               of a seed     binds, runs     and hangs

`python -m fuzzing.files --help` shows how to run it.
"""
