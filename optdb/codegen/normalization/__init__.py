"""Batch normalization: reductions over channels, and elementwise maps with per-channel numbers."""
