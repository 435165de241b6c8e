"""Contains the smallest sizes of the models in profiles/, for tests of all models."""

from __future__ import annotations

SMALL = {
    "mlp": {"depth": 1, "width": 4},
    "convnet": {"width": 1},
    "resnet50": {"width": 4, "size": 32, "blocks": (1, 1)},
    "cifar_resnet": {"n": 1, "size": 8},
    "sb_resnet": {"depth": 11, "size": 4},
    "sb_resnet56": {"depth": 11, "size": 4},
    "lstm": {"layers": 1, "steps": 3},
    "gru30": {"steps": 2},
    "gru30_gates": {"steps": 2, "width": 4, "batch": 2},
    "transformer": {"width": 4, "tokens": 3},
    "vae": {"hidden": 1},
    "mixture": {"groups": 1},
    "gp": {"dimensions": 1, "members": 4},
}

CONVOLUTIONAL = ("convnet", "resnet50", "cifar_resnet", "sb_resnet")
"""Models that run on the host only where there is a compiler, which takes its time."""
