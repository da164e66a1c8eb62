"""Build traces, programs and records for the tests."""
