"""What traces, programs and records the tests are made of."""
