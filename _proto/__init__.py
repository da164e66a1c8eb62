"""Read the bytes of traces, HLO texts, and programs. The package `_proto` does not know steps or
figures."""
