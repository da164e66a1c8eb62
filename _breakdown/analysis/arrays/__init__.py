"""Follow the arrays of a step's program through HBM."""
