"""Tests of the stages from a file to a normalized step: `_pipeline`."""
