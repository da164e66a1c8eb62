"""Read HLO: the texts of ops in a trace, and the compiled programs that captures hold."""
