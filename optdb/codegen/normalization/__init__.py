"""Kernels over channels: reductions of each channel, and elementwise maps with numbers of each channel."""
