"""Test `_pipeline`: the stages from a file to a normalized step."""
