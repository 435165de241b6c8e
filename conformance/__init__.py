"""The hosts' own test suites as the judge of optdb's engine: Theano's, and PyTensor's.

Every suite file runs under stock Theano and again with the engine on, each in a process of its own on this machine,
and the two are compared test by test: what passes under stock must pass with the engine.

The way of the data::

    suites ──▶ runner ──▶ pytest process ──▶ records ──▶ compare ──▶ report
    which      start,     plugin: one suite  one line    suspects    tables,
    files      watch,     file, one way;     per test    run again   exit status
               resume     nose_style                     alone
                                                           ▲
               baseline: stock's records, kept on disk ────┘

`python -m conformance --help` says how to run it.
"""
