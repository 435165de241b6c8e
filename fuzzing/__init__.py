"""Random functions under random switches, against Theano without any optimization.

- ``operations``: what a random graph is made of.
- ``programs``: two random functions and the calls of them, as data that builds graphs and prints as a script.
- ``switches``: the switches under which they are compiled and called, what excludes what, and how they are set.
- ``strategies``: Hypothesis strategies that draw programs and switches.
- ``ways``: the functions of a program, each compiled as its switches say, on the same shared variables.
- ``comparing``: one program under some switches, compared call by call.
- ``pairs``: how often switches were drawn together, and the tables of docs/fuzzing.md.
- ``convolutions``: random convolutions and poolings, by a command of its own, ``python -m fuzzing.convolutions``.
- ``claims``: functions whose types claim what values break, by a command of its own, ``python -m fuzzing.claims``.
- ``files``: exported files altered at random, by a command of its own, ``python -m fuzzing.files``.

``python -m fuzzing`` runs many examples in several processes; ``tests/fuzzing`` runs some hundred. All numbers are
small integers, in floating point too, so every operation is exact and the comparison is for equality.
"""

import optdb  # noqa: F401  (Theano can be imported from here on)
