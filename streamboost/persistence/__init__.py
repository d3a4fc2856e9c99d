"""Objects to files and back: :mod:`~streamboost.persistence.object_graph`, snapshots and checkpoints."""
