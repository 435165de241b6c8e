"""Exported plan files, altered at random with valid digests: each file must be rejected or run within its limits."""
