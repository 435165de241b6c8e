"""The host: the compiler that optdb plugs into, Theano 1.0.5.

This is the only folder that imports Theano. The rest of the package takes its words from ``api``, so that another host
can replace it. The import of this package imports nothing.

- ``api``: the vocabulary, what a second host would have to give.
- ``functions``: compiled functions, observed, copied and decomposed.
- ``speedups``: replacements of Theano's functions that take less time.
- ``rewriters``: what is known of Theano's rewriters.
- ``clinker``: C code in batches, and tiers.
- ``vectorized``: what nodes compute by whole arrays without C code.
- ``importing``: what makes ``import theano`` work.
"""


def import_host() -> None:
    """Import Theano, and with it what `optdb.composition` adds to it.

    The folders that need it call this before anything else: the additions come from their modules, which must be
    complete by then.
    """
    import theano  # noqa: F401
