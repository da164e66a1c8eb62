"""HLO: the texts that a trace has of its ops, and the compiled programs beside it."""
