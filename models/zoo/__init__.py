"""Builders of the models; each module registers a family of models of one library in `models.registry`."""

from models.zoo import (  # noqa: F401  imported because they register themselves
    keras_generative,
    keras_images,
    keras_sequences,
    lasagne_nets,
    pymc3_densities,
    pymc3_variational,
)
