"""Test the arrays of a step."""
