"""Idle time: gaps, pauses between steps, and what the host does in them."""
