"""Read HLO: the texts of ops, and the compiled programs in captures."""
