"""Theano's own test suites as the judge of optdb's engine.

Every suite file runs under stock Theano and again with the engine on, each in a process of its own on this
machine, and the two are compared test by test: what passes under stock must pass with the engine.

The way of the data::

    suites ──▶ runner ──▶ pytest process (plugin, yields) ──▶ records ──▶ compare ──▶ report
    which      start,     one suite file under one way,       a line per   regressions,   tables,
    files      watch,     writes as it goes                   test         re-run alone   exit status
               resume
                 ▲
                 └── baseline: what stock did, kept on disk between runs

`python -m conformance --help` says how to run it.
"""
