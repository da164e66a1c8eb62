"""Parts of causes: what all rules share (`find`, `cause`, `step_program`, `sentences`), how values
flow and links are shared (`graph`, `links`), and parts that would make a rule's file too long."""
