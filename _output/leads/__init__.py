"""Write an answer's headline and the commands to run next.

Each mode has a file with two functions, `headline` and `next_steps`. Both functions read the
printed answer, so that a headline contains only figures from the answer.
"""
