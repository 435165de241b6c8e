"""The pass that merges small launches, with back ends for processors, GPUs and copies."""
