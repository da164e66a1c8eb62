"""Tests of `_breakdown/output`."""
