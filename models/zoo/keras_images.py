"""Keras nets for images: plain, residual, dense, separable, transposed and three-dimensional convolutions."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from models.zoo.keras_base import CompiledNet, keras_model, one_hot, pictures


def _classifier(
    net: Any,
    rng: np.random.RandomState,
    batch: int,
    size: int,
    classes: int,
    optimizer: Any = "adam",
    channels: int = 3,
) -> CompiledNet:
    """Compile a net that classifies pictures; return it with its data."""
    net.compile(optimizer, "categorical_crossentropy", metrics=["accuracy"])
    return net, [pictures(rng, batch, size, channels)], [one_hot(rng, batch, classes)]


@keras_model("keras_mnist_cnn")
def mnist_cnn(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 4, size: int = 12, width: int = 4
) -> CompiledNet:
    """Keras's MNIST example: two convolutions, max-pooling, dropout, two dense layers, Adadelta."""
    layers = keras.layers
    net = keras.models.Sequential(
        [
            layers.Conv2D(width, 3, activation="relu", input_shape=(size, size, 1)),
            layers.Conv2D(2 * width, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(4 * width, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    return _classifier(net, rng, batch, size, 10, "adadelta", channels=1)


@keras_model("keras_activations")
def activations(keras: ModuleType, rng: np.random.RandomState, batch: int = 6, width: int = 16) -> CompiledNet:
    """Dense layers with all kinds of activations and noise, constraints and regularizers, and Nadam."""
    layers = keras.layers
    hidden = x = layers.Input((width,))
    kinds = [
        layers.PReLU(),
        layers.LeakyReLU(),
        layers.ELU(),
        layers.ThresholdedReLU(0.1),
        layers.Activation("selu"),
        layers.Activation("softsign"),
        layers.Activation("hard_sigmoid"),
    ]
    noises = [
        layers.GaussianNoise(0.1),
        layers.GaussianDropout(0.1),
        layers.AlphaDropout(0.1),
        layers.Dropout(0.2),
    ]
    for position, kind in enumerate(kinds):
        dense = layers.Dense(width, kernel_regularizer="l2", kernel_constraint=keras.constraints.max_norm(2.0))
        hidden = layers.BatchNormalization()(kind(dense(hidden)))
        if position < len(noises):
            hidden = noises[position](hidden)
    net = keras.models.Model(x, layers.Dense(5, activation="softmax")(hidden))
    net.compile("nadam", "categorical_crossentropy", metrics=["accuracy"])
    return net, [rng.standard_normal((batch, width))], [one_hot(rng, batch, 5)]


@keras_model("keras_residual")
def residual(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 4, size: int = 8, width: int = 4
) -> CompiledNet:
    """Residual blocks with batch normalization, global pooling, and momentum."""
    layers = keras.layers
    x = layers.Input((size, size, 3))
    hidden = layers.Conv2D(width, 3, padding="same")(x)
    for stride, channels in ((1, width), (2, 2 * width), (2, 4 * width)):
        shortcut = layers.Conv2D(channels, 1, strides=stride)(hidden)
        for position in range(2):
            hidden = layers.Activation("relu")(layers.BatchNormalization()(hidden))
            hidden = layers.Conv2D(channels, 3, strides=1 if position else stride, padding="same")(hidden)
        hidden = layers.add([shortcut, hidden])
    pooled = layers.GlobalAveragePooling2D()(layers.Activation("relu")(hidden))
    net = keras.models.Model(x, layers.Dense(10, activation="softmax")(pooled))
    return _classifier(net, rng, batch, size, 10, keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True))


@keras_model("keras_separable")
def separable(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 3, size: int = 10, width: int = 4
) -> CompiledNet:
    """Separable and depthwise convolutions, batch normalization and spatial dropout, as in Xception."""
    layers = keras.layers
    net = keras.models.Sequential(
        [
            layers.Conv2D(width, 3, strides=2, use_bias=False, input_shape=(size, size, 3)),
            layers.BatchNormalization(),
            layers.Activation("relu"),
            layers.SeparableConv2D(2 * width, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.SpatialDropout2D(0.2),
            layers.DepthwiseConv2D(3, depth_multiplier=2, padding="same"),
            layers.AveragePooling2D(2),
            layers.GlobalMaxPooling2D(),
            layers.Dense(5, activation="softmax"),
        ]
    )
    return _classifier(net, rng, batch, size, 5, "rmsprop")


@keras_model("keras_densenet")
def densenet(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 2, size: int = 32, blocks: tuple = (2,) * 4
) -> CompiledNet:
    """Keras's DenseNet, with few and short dense blocks."""
    from keras_applications.densenet import DenseNet

    net = DenseNet(list(blocks), weights=None, input_shape=(size, size, 3), classes=10, **_parts(keras))
    return _classifier(net, rng, batch, size, 10)


def _parts(keras: ModuleType) -> dict[str, ModuleType]:
    """Return the modules of Keras that keras_applications takes as arguments."""
    return {"backend": keras.backend, "layers": keras.layers, "models": keras.models, "utils": keras.utils}


@keras_model("keras_mobilenet")
def mobilenet(keras: ModuleType, rng: np.random.RandomState, batch: int = 2, size: int = 32) -> CompiledNet:
    """Keras's MobileNet, a quarter as wide."""
    net = keras.applications.mobilenet.MobileNet(
        input_shape=(size, size, 3), alpha=0.25, weights=None, classes=10, dropout=0.1
    )
    return _classifier(net, rng, batch, size, 10, "sgd")


@keras_model("keras_mobilenet_v2")
def mobilenet_v2(keras: ModuleType, rng: np.random.RandomState, batch: int = 2, size: int = 32) -> CompiledNet:
    """Keras's MobileNetV2, a third as wide."""
    net = keras.applications.mobilenet_v2.MobileNetV2(input_shape=(size, size, 3), alpha=0.35, weights=None, classes=10)
    return _classifier(net, rng, batch, size, 10, "sgd")


@keras_model("keras_unet")
def unet(keras: ModuleType, rng: np.random.RandomState, batch: int = 2, size: int = 16, width: int = 4) -> CompiledNet:
    """A U-net: convolutions down, transposed convolutions up, skip connections, and a loss for each pixel."""
    layers = keras.layers
    x = layers.Input((size, size, 1))
    hidden, skipped = x, []
    for level in range(2):
        hidden = layers.Conv2D(width << level, 3, padding="same", activation="relu")(hidden)
        skipped.append(hidden)
        hidden = layers.MaxPooling2D(2)(hidden)
    hidden = layers.Dropout(0.3)(layers.Conv2D(4 * width, 3, padding="same", activation="relu")(hidden))
    for level in (1, 0):
        hidden = layers.Conv2DTranspose(width << level, 3, strides=2, padding="same")(hidden)
        hidden = layers.concatenate([hidden, skipped[level]])
        hidden = layers.Conv2D(width << level, 3, padding="same", activation="relu")(hidden)
    net = keras.models.Model(x, layers.Conv2D(1, 1, activation="sigmoid")(hidden))
    net.compile("adam", "binary_crossentropy", metrics=["mae"])
    masks = (rng.uniform(size=(batch, size, size, 1)) > 0.5).astype("float64")
    return net, [pictures(rng, batch, size, 1)], [masks]


@keras_model("keras_conv3d")
def conv3d(keras: ModuleType, rng: np.random.RandomState, batch: int = 2, size: int = 8, width: int = 3) -> CompiledNet:
    """Three-dimensional convolutions and pooling."""
    layers = keras.layers
    net = keras.models.Sequential(
        [
            layers.Conv3D(width, 3, activation="relu", input_shape=(size, size, size, 1)),
            layers.MaxPooling3D(2),
            layers.BatchNormalization(),
            layers.Conv3D(2 * width, 2, padding="same", activation="tanh"),
            layers.GlobalAveragePooling3D(),
            layers.Dense(4, activation="softmax"),
        ]
    )
    net.compile("adagrad", "categorical_crossentropy")
    return net, [rng.standard_normal((batch, size, size, size, 1))], [one_hot(rng, batch, 4)]


@keras_model("keras_siamese")
def siamese(keras: ModuleType, rng: np.random.RandomState, batch: int = 6, width: int = 12) -> CompiledNet:
    """A siamese net: two inputs through shared layers, and the contrastive loss of their distance."""
    layers, backend = keras.layers, keras.backend
    shared = keras.models.Sequential(
        [
            layers.Dense(width, activation="relu", input_shape=(width,)),
            layers.Dropout(0.1),
            layers.Dense(width, activation="relu"),
        ]
    )
    left, right = layers.Input((width,)), layers.Input((width,))

    def distance(pair: Any) -> Any:
        squares = backend.sum(backend.square(pair[0] - pair[1]), axis=1, keepdims=True)
        return backend.sqrt(backend.maximum(squares, backend.epsilon()))

    def contrastive(truth: Any, predicted: Any) -> Any:
        near, far = backend.square(predicted), backend.square(backend.maximum(1 - predicted, 0))
        return backend.mean(truth * near + (1 - truth) * far)

    between = layers.Lambda(distance, output_shape=(1,))([shared(left), shared(right)])
    net = keras.models.Model([left, right], between)
    net.compile("rmsprop", contrastive)
    return net, [rng.standard_normal((batch, width)) for _ in range(2)], [rng.randint(2, size=(batch, 1))]
