"""Generative Keras nets: variational and convolutional autoencoders, a GAN, and style transfer."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from models.zoo.keras_base import CompiledNet, keras_model, pictures


@keras_model("keras_vae")
def vae(keras: ModuleType, rng: np.random.RandomState, batch: int = 4, width: int = 16, latent: int = 2) -> CompiledNet:
    """A variational autoencoder with a custom loss, and noise drawn by a Lambda layer."""
    layers, backend = keras.layers, keras.backend
    x = layers.Input((width,))
    hidden = layers.Dense(width, activation="relu")(x)
    mean, log_variance = layers.Dense(latent)(hidden), layers.Dense(latent)(hidden)

    def draw(parameters: Any) -> Any:
        mean, log_variance = parameters
        return mean + backend.exp(0.5 * log_variance) * backend.random_normal(backend.shape(mean))

    drawn = layers.Lambda(draw, output_shape=(latent,))([mean, log_variance])
    decoded = layers.Dense(width, activation="sigmoid")(layers.Dense(width, activation="relu")(drawn))
    net = keras.models.Model(x, decoded)
    divergence = -0.5 * backend.sum(1 + log_variance - backend.square(mean) - backend.exp(log_variance), axis=-1)
    net.add_loss(backend.mean(width * keras.losses.binary_crossentropy(x, decoded) + divergence))
    net.compile("rmsprop")
    return net, [rng.uniform(size=(batch, width))], []


@keras_model("keras_autoencoder")
def autoencoder(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 2, size: int = 12, width: int = 4
) -> CompiledNet:
    """A convolutional autoencoder: strided convolutions down; upsampling, cropping and transposed convolutions up."""
    layers = keras.layers
    net = keras.models.Sequential(
        [
            layers.ZeroPadding2D(2, input_shape=(size, size, 1)),
            layers.Conv2D(width, 3, strides=2, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.Conv2D(2 * width, 3, strides=2, padding="same", activation="relu"),
            layers.UpSampling2D(2),
            layers.Conv2DTranspose(width, 3, strides=2, padding="same", activation="relu"),
            layers.Cropping2D(2),
            layers.Conv2D(1, 3, padding="same", activation="sigmoid"),
        ]
    )
    net.compile("adam", "mse")
    faces = pictures(rng, batch, size, 1)
    return net, [faces], [faces]


@keras_model("keras_gan")
def gan(keras: ModuleType, rng: np.random.RandomState, batch: int = 4, size: int = 8, latent: int = 6) -> CompiledNet:
    """The training step of a GAN's generator; the discriminator is fixed."""
    layers = keras.layers
    generator = keras.models.Sequential(
        [
            layers.Dense(4 * 4 * 4, input_dim=latent),
            layers.Reshape((4, 4, 4)),
            layers.UpSampling2D(2),
            layers.Conv2D(4, 3, padding="same"),
            layers.BatchNormalization(momentum=0.8),
            layers.LeakyReLU(0.2),
            layers.Conv2D(1, 3, padding="same", activation="tanh"),
        ]
    )
    discriminator = keras.models.Sequential(
        [
            layers.Conv2D(4, 3, strides=2, padding="same", input_shape=(size, size, 1)),
            layers.LeakyReLU(0.2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    discriminator.trainable = False
    noise = layers.Input((latent,))
    net = keras.models.Model(noise, discriminator(generator(noise)))
    net.compile(keras.optimizers.Adam(0.0002, 0.5), "binary_crossentropy")
    return net, [rng.standard_normal((batch, latent))], [np.ones((batch, 1))]


@keras_model("keras_style")
def style(keras: ModuleType, rng: np.random.RandomState, batch: int = 2, size: int = 10, width: int = 4) -> CompiledNet:
    """Style transfer: a loss of Gram matrices of channels, and total variation."""
    layers, backend = keras.layers, keras.backend
    x, reference = layers.Input((size, size, 3)), layers.Input((size, size, 3))
    features = keras.models.Sequential(
        [layers.Conv2D(width, 3, activation="relu", input_shape=(size, size, 3)), layers.MaxPooling2D(2)]
    )

    def gram(picture: Any) -> Any:
        channels = backend.permute_dimensions(features(picture), (0, 3, 1, 2))
        flat = backend.reshape(channels, (batch, width, -1))
        return backend.batch_dot(flat, backend.permute_dimensions(flat, (0, 2, 1)))

    painted = layers.Conv2D(3, 3, padding="same")(x)
    variation = backend.sum(
        backend.pow(backend.square(painted[:, :-1, :-1] - painted[:, 1:, :-1]) + backend.epsilon(), 1.25)
    )
    net = keras.models.Model([x, reference], painted)
    net.add_loss(backend.mean(backend.square(gram(painted) - gram(reference))) + 1e-3 * variation)
    net.compile(keras.optimizers.SGD(1e-4))
    return net, [pictures(rng, batch, size) for _ in range(2)], []
