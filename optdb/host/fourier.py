"""The host's Fourier transforms, by name."""

from theano.tensor.fft import IRFFTOp, RFFTOp

__all__ = ["IRFFTOp", "RFFTOp"]
