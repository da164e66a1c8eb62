"""Test `_modes`: answers for steps and records."""
