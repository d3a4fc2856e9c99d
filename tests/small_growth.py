"""Memories of some dozen rows that grow to some hundred, as those of some ten thousand grow to a million."""

import streamboost.replay
from streamboost.boosting import growth
from streamboost.estimators import defaults

MOST_ROWS = 700  # that are held: room is made for 256, 512 and 700 of them, and then the ring closes
CONSTANTS = {
    "BELIEVED": 0.0, "FEWEST_TREES": 4, "MOST_TREES": 5, "WAIT": 2, "MOST_ROWS": MOST_ROWS, "TRIAL_ROWS": 1500,
    "EARNED": 0.0, "HOPELESS": 0.0,
}  # fmt: skip


def shrink(set_attribute=setattr):
    """Let a booster that holds all rows come when 64 are there, and leave after 1,500 if nobody believes it."""
    set_attribute(defaults, "LADDER", (16, 64))
    set_attribute(streamboost.replay, "SOONEST_TURN", 8)
    for name, value in CONSTANTS.items():
        set_attribute(growth, name, value)
