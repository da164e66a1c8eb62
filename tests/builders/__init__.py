"""Build the traces, programs and records that the tests read."""
