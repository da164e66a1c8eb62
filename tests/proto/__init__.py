"""Tests of the bytes: `_proto`."""
