"""Test `_breakdown/modes`: answers for steps and records."""
