"""Find arrays that are larger than they need be, by laws about which ops can run earlier or later.

A law is a file. It says which ops make arrays smaller or larger, which ops they can be moved past,
and what is left of an array that several ops read or make:

    law      op that moves                      moves past
    part     slice, lookup, mask      earlier   nearly all that keeps a dimension
    sum      sum over a dimension     earlier   linear ops, collectives
    narrow   cast to a narrower float earlier   ops and collectives that only move elements
    little   any reduction or lookup  earlier   ops on elements, also after a gather of devices
    zero     pad, scatter, one-hot    later     ops that keep zeros
    repeat   broadcast, lookup        later     ops on elements, matmuls, collectives
    derived  ops on elements          later     collectives only
"""
