"""Test `_proto`, the package that decodes traces and programs."""
