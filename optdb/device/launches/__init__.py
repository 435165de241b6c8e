"""Merges small launches, with back ends for processors, GPUs and copies."""
