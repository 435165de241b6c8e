"""Random functions under random switches, compared with unoptimized Theano.

- ``operations``: the operations of random graphs.
- ``programs``: two random functions and their calls, as data that builds graphs and prints as a script.
- ``switches``: the switches of compilation and calls, their exclusions, and how they are set.
- ``strategies``: Hypothesis strategies that draw programs and switches.
- ``ways``: the functions of a program, each compiled according to its switches, on the same shared variables.
- ``comparing``: one program with some switches, compared call by call.
- ``pairs``: counts how often switches were drawn together, and writes the tables of docs/fuzzing.md.
- ``convolutions``: random convolutions and poolings, with a separate command, ``python -m fuzzing.convolutions``.
- ``claims``: functions whose values violate their types, with a separate command, ``python -m fuzzing.claims``.
- ``files``: exported files altered at random, with a separate command, ``python -m fuzzing.files``.

``python -m fuzzing`` runs many examples in several processes; ``tests/fuzzing`` runs a few hundred. All numbers are
small integers, also in floating point, so every operation is exact and results must be equal.
"""

import optdb  # noqa: F401  (Theano can be imported from here on)
