"""Test `_proto`, which reads bytes."""
