"""Kernels: their regions and counters."""
