"""Devices: their figures for the same steps, from traces and records, and which one is slow."""
