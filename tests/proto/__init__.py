"""Tests of `_proto`: reading bytes."""
