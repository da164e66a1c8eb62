"""Roofs: the cost of each op, and how far it is from what the chip can do."""
