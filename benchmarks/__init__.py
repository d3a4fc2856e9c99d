"""How streamboost does beside other learners; the commands are in the files' first lines."""
