"""A source learned to its end, killable at any point: the loop, the guard, the quarantine, the predictions."""
