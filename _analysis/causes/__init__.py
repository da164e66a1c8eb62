"""Find the causes of lost time: patterns in the step's program or the trace, each with the source
line to change and the gain."""
