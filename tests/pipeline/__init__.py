"""Test `_breakdown/pipeline`: the stages from a file to a normalized step."""
