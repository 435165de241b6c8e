"""Merges small launches, with back ends for CPUs, GPUs and copies."""
