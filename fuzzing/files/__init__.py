"""Alters exported plan files at random: each altered file must be rejected, or must run within its limits."""
