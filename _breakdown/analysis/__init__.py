"""Figures that several modes share: costs, communication, idle time, memory, records."""
