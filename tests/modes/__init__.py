"""Tests of what is said of a step, or of records: `_modes`."""
