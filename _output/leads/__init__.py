"""Say what matters in an answer: its headline, and the commands to run next.

Each mode has a file with two functions, `headline` and `next_steps`. Both read the answer that is
printed, so that a headline has no figure that the answer lacks.
"""
