"""Fused loops: kernels that compute any number of results in one pass over a domain."""
