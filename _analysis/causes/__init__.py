"""Find what makes a step slow: patterns that are seen in its program, with a line and a gain."""
