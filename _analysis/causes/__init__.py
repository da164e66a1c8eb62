"""Find the causes of lost time: patterns in the step's program or the trace, each with a line and a
gain."""
