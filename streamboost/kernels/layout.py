"""Where things lie in the arrays that kernels of rows take: a plan, the counts and the rates of each booster.

Kernels are compiled with these numbers in them.
"""

# What a plan tells of a booster; what its replay counts; its rates.
(
    N_TREES, TREE, NODE, LEAF, DEPTH, ROW, ROOM, LEAF_ID, CODE, EVERY, SOONEST, WARMUP, BASE, OTHER, RESTS, TURN,
    SEEN_BEFORE,
) = range(17)  # fmt: skip
PLAN = 17
FILL, AT, WAITED, SEEN, WARM, DUE = range(6)
L2, FORGET, KEEP, RATE, SPREAD, NEWTON = range(6)
RATES = 6
SAMPLED = 64  # one in so many rows tells the edges of trees that rest
