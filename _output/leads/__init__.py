"""Write the headline of an answer, and the commands to run next.

Each mode has a file with two functions, `headline` and `next_steps`. Both functions read the
printed answer, so that a headline has only figures of the answer.
"""
