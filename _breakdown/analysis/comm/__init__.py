"""Communication: collectives, transfers, and waiting for other devices."""
