"""Test `_modes`: the answers about steps and records."""
