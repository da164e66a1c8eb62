"""Where ops come from: their source lines and loops, and the rows that modes print of them."""
