"""Read the bytes of traces, HLO texts, and programs. This package knows no steps or figures."""
