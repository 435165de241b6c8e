"""The random ops of the host, by name."""

from theano.sandbox.multinomial import (
    ChoiceFromUniform,
    MultinomialFromUniform,
    MultinomialWOReplacementFromUniform,
)
from theano.sandbox.rng_mrg import mrg_uniform, mrg_uniform_base
from theano.tensor.raw_random import RandomFunction

__all__ = [
    "ChoiceFromUniform",
    "MultinomialFromUniform",
    "MultinomialWOReplacementFromUniform",
    "RandomFunction",
    "mrg_uniform",
    "mrg_uniform_base",
]
