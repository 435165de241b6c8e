"""Keras nets for sequences: recurrent, masked and bidirectional nets, and nets with memory or attention."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from models.zoo.keras_base import CompiledNet, keras_model, one_hot


@keras_model("keras_masked_lstm")
def masked_lstm(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 4, steps: int = 6, width: int = 8
) -> CompiledNet:
    """Masked word embeddings, two LSTM layers, and a class for each word."""
    layers = keras.layers
    net = keras.models.Sequential(
        [
            layers.Embedding(20, width, mask_zero=True, input_length=steps),
            layers.LSTM(width, return_sequences=True, dropout=0.1, recurrent_dropout=0.1),
            layers.LSTM(width, return_sequences=True),
            layers.TimeDistributed(layers.Dense(5, activation="softmax")),
        ]
    )
    net.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return net, [_words(rng, batch, steps, 20)], [rng.randint(5, size=(batch, steps, 1))]


def _words(rng: np.random.RandomState, batch: int, steps: int, vocabulary: int) -> np.ndarray:
    """Return sentences of different lengths, with zeros before them."""
    words = rng.randint(1, vocabulary, size=(batch, steps))
    for row in range(batch):
        words[row, : row % steps] = 0
    return words


@keras_model("keras_lstm")
def lstm(keras: ModuleType, rng: np.random.RandomState, batch: int = 3, steps: int = 5, width: int = 8) -> CompiledNet:
    """Two LSTM layers, a softmax, and clipped gradients."""
    layers = keras.layers
    net = keras.models.Sequential(
        [
            layers.LSTM(width, return_sequences=True, input_shape=(steps, width)),
            layers.LSTM(width),
            layers.Dense(10, activation="softmax"),
        ]
    )
    net.compile(keras.optimizers.Adam(clipnorm=1.0), "categorical_crossentropy")
    return net, [rng.standard_normal((batch, steps, width))], [one_hot(rng, batch, 10)]


@keras_model("keras_cnn_lstm")
def cnn_lstm(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 4, steps: int = 12, vocabulary: int = 20
) -> CompiledNet:
    """Keras's example: word embeddings with dropout, a convolution, max-pooling, and an LSTM."""
    layers = keras.layers
    net = keras.models.Sequential(
        [
            layers.Embedding(vocabulary, 8, input_length=steps),
            layers.Dropout(0.25),
            layers.Conv1D(6, 5, padding="valid", activation="relu", strides=1),
            layers.MaxPooling1D(pool_size=4),
            layers.LSTM(7),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    net.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return net, [rng.randint(vocabulary, size=(batch, steps))], [rng.randint(2, size=(batch, 1))]


@keras_model("keras_bidirectional")
def bidirectional(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 3, steps: int = 5, width: int = 6
) -> CompiledNet:
    """Bidirectional GRU layers over masked sequences, with dropout between and inside the layers."""
    layers = keras.layers
    net = keras.models.Sequential(
        [
            layers.Masking(input_shape=(steps, width)),
            layers.Bidirectional(layers.GRU(width, return_sequences=True, recurrent_dropout=0.2)),
            layers.Dropout(0.5),
            layers.Bidirectional(layers.GRU(width, reset_after=True), merge_mode="ave"),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    net.compile("rmsprop", "binary_crossentropy", metrics=["accuracy"])
    sequences = rng.standard_normal((batch, steps, width))
    sequences[0, 3:] = 0
    return net, [sequences], [rng.randint(2, size=(batch, 1))]


@keras_model("keras_convlstm")
def convlstm(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 2, steps: int = 3, size: int = 6
) -> CompiledNet:
    """Prediction of a film's next frame: ConvLSTM2D layers, batch normalization, a three-dimensional convolution."""
    layers = keras.layers
    net = keras.models.Sequential(
        [
            layers.ConvLSTM2D(3, 3, padding="same", return_sequences=True, input_shape=(steps, size, size, 1)),
            layers.BatchNormalization(),
            layers.ConvLSTM2D(2, 3, padding="same", return_sequences=True),
            layers.Conv3D(1, 3, activation="sigmoid", padding="same"),
        ]
    )
    net.compile("adadelta", "binary_crossentropy")
    films = rng.uniform(size=(2, batch, steps, size, size, 1))
    return net, [films[0]], [films[1]]


@keras_model("keras_memory_network")
def memory_network(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 4, story: int = 8, query: int = 3, vocabulary: int = 12
) -> CompiledNet:
    """An end-to-end memory network: a question is matched with a story, an LSTM reads the answer."""
    layers = keras.layers
    told, asked = layers.Input((story,)), layers.Input((query,))

    def encoder(width: int, length: int) -> Any:
        return keras.models.Sequential([layers.Embedding(vocabulary, width, input_length=length), layers.Dropout(0.3)])

    memories, outputs, question = encoder(8, story)(told), encoder(query, story)(told), encoder(8, query)(asked)
    match = layers.Activation("softmax")(layers.dot([memories, question], axes=(2, 2)))
    response = layers.Permute((2, 1))(layers.add([match, outputs]))
    answer = layers.Dropout(0.3)(layers.LSTM(8)(layers.concatenate([response, question])))
    net = keras.models.Model([told, asked], layers.Dense(vocabulary, activation="softmax")(answer))
    net.compile("rmsprop", "sparse_categorical_crossentropy", metrics=["accuracy"])
    inputs = [rng.randint(vocabulary, size=(batch, length)) for length in (story, query)]
    return net, inputs, [rng.randint(vocabulary, size=(batch, 1))]


@keras_model("keras_attention")
def attention(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 3, steps: int = 5, width: int = 6
) -> CompiledNet:
    """A bidirectional LSTM with attention over its states."""
    layers, backend = keras.layers, keras.backend
    x = layers.Input((steps, width))
    states = layers.Bidirectional(layers.LSTM(width, return_sequences=True))(x)
    scores = layers.Flatten()(layers.Dense(1, activation="tanh")(states))
    weights = layers.Permute((2, 1))(layers.RepeatVector(2 * width)(layers.Activation("softmax")(scores)))
    weighed = layers.multiply([states, weights])
    summed = layers.Lambda(lambda product: backend.sum(product, axis=1), output_shape=(2 * width,))(weighed)
    net = keras.models.Model(x, layers.Dense(4, activation="softmax")(summed))
    net.compile("adamax", "categorical_crossentropy", metrics=["accuracy"])
    return net, [rng.standard_normal((batch, steps, width))], [one_hot(rng, batch, 4)]


@keras_model("keras_transformer")
def transformer(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 3, steps: int = 5, width: int = 8
) -> CompiledNet:
    """Self-attention with two heads, residual paths and position-wise dense layers."""
    layers, backend = keras.layers, keras.backend
    words = layers.Input((steps,))
    hidden = layers.Embedding(15, width)(words)
    heads = []
    for _ in range(2):
        query, key, value = (layers.Dense(width // 2, use_bias=False)(hidden) for _ in range(3))
        scores = layers.Lambda(lambda x: x / backend.sqrt(backend.constant(width)))(layers.dot([query, key], (2, 2)))
        heads.append(layers.dot([layers.Dropout(0.1)(layers.Softmax()(scores)), value], axes=(2, 1)))
    hidden = layers.BatchNormalization()(layers.add([hidden, layers.concatenate(heads)]))
    wide = layers.Conv1D(width, 1)(layers.Conv1D(2 * width, 1, activation="relu")(hidden))
    pooled = layers.GlobalMaxPooling1D()(layers.add([hidden, wide]))
    net = keras.models.Model(words, layers.Dense(4, activation="softmax")(pooled))
    net.compile("adam", "categorical_crossentropy")
    return net, [rng.randint(15, size=(batch, steps))], [one_hot(rng, batch, 4)]


@keras_model("keras_seq2seq")
def seq2seq(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 3, steps: int = 4, width: int = 6
) -> CompiledNet:
    """An encoder, and a decoder that starts from the encoder's states."""
    layers = keras.layers
    source, target = layers.Input((steps, width)), layers.Input((steps + 1, width))
    _, hidden, cell = layers.LSTM(width, return_state=True)(source)
    decoded = layers.LSTM(width, return_sequences=True)(target, initial_state=[hidden, cell])
    net = keras.models.Model([source, target], layers.Dense(width, activation="softmax")(decoded))
    net.compile("rmsprop", "categorical_crossentropy")
    inputs = [rng.standard_normal((batch, length, width)) for length in (steps, steps + 1)]
    return net, inputs, [one_hot(rng, batch * (steps + 1), width).reshape(batch, steps + 1, width)]


@keras_model("keras_stateful_rnn")
def stateful_rnn(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 3, steps: int = 4, width: int = 5
) -> CompiledNet:
    """Recurrent layers that keep their states from call to call, one of them unrolled."""
    layers = keras.layers
    net = keras.models.Sequential(
        [
            layers.GRU(width, stateful=True, return_sequences=True, batch_input_shape=(batch, steps, width)),
            layers.SimpleRNN(width, stateful=True, unroll=True),
            layers.Dense(1),
        ]
    )
    net.compile("adam", "mse")
    return net, [rng.standard_normal((batch, steps, width))], [rng.standard_normal((batch, 1))]


@keras_model("keras_wavenet")
def wavenet(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 2, steps: int = 16, width: int = 6
) -> CompiledNet:
    """Dilated causal convolutions with gates, residual paths and skip connections."""
    layers = keras.layers
    x = layers.Input((steps, 1))
    hidden, skipped = layers.Conv1D(width, 1)(x), []
    for dilation in (1, 2, 4):
        gates = [
            layers.Conv1D(width, 2, dilation_rate=dilation, padding="causal", activation=kind)(hidden)
            for kind in ("tanh", "sigmoid")
        ]
        gated = layers.multiply(gates)
        hidden = layers.add([hidden, layers.Conv1D(width, 1)(gated)])
        skipped.append(layers.Conv1D(width, 1)(gated))
    net = keras.models.Model(x, layers.Conv1D(4, 1, activation="softmax")(layers.ReLU()(layers.add(skipped))))
    net.compile("adam", "categorical_crossentropy")
    return net, [rng.standard_normal((batch, steps, 1))], [one_hot(rng, batch * steps, 4).reshape(batch, steps, 4)]


@keras_model("keras_text_cnn")
def text_cnn(
    keras: ModuleType, rng: np.random.RandomState, batch: int = 4, steps: int = 12, width: int = 6
) -> CompiledNet:
    """Word embeddings, convolutions of several lengths, and locally connected layers."""
    layers = keras.layers
    words = layers.Input((steps,))
    embedded = layers.SpatialDropout1D(0.2)(layers.Embedding(30, width)(words))
    branches = [
        layers.GlobalMaxPooling1D()(layers.Conv1D(width, length, activation="relu")(embedded)) for length in (2, 3)
    ]
    local = layers.MaxPooling1D(2)(layers.LocallyConnected1D(width, 3, strides=2)(embedded))
    joined = layers.concatenate([*branches, layers.Flatten()(local)])
    net = keras.models.Model(words, layers.Dense(1, activation="sigmoid")(joined))
    net.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return net, [rng.randint(30, size=(batch, steps))], [rng.randint(2, size=(batch, 1))]
