"""Find what in a program makes its step slow: patterns that are seen, each with a line and a gain."""
