"""The hosts' own test suites, Theano's and PyTensor's, as tests of optdb's engine.

Every suite file runs with stock Theano and again with the engine enabled, each in a separate process on this machine,
and the results are compared test by test: a test that passes with stock must pass with the engine.

Data flow::

    suites ──▶ runner ──▶ pytest process ──▶ records ──▶ compare ──▶ report
    which      start,     plugin: one suite  one line    suspects    tables,
    files      watch,     file, one way;     per test    run again   exit status
               resume     nose_style                     alone
                                                           ▲
               baseline: stock's records, kept on disk ────┘

`python -m conformance --help` shows how to run it.
"""
