"""Decode traces, HLO texts and programs. This package is independent of steps and modes."""
