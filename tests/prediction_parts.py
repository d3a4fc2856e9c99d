"""The predictions of a run as one table, as pyarrow reads it: parts in the order of their names."""

import pyarrow.dataset


def read_parts(directory):
    """All parts as a table."""
    return pyarrow.dataset.dataset(directory, format=directory.suffix[1:] or "parquet").to_table()
