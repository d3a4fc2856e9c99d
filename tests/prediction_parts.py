"""The predictions of a run as one table: parts in the order of their names."""

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet


def read_parts(directory):
    """All parts as a table; CSV as one text, for a part alone may not tell the types."""
    if directory.suffix != ".csv":
        return pa.parquet.read_table(directory)
    texts = [path.read_bytes() for path in sorted(directory.glob("part-*.csv"))]
    whole = texts[0] + b"".join(text.split(b"\n", 1)[1] for text in texts[1:])
    return pa.csv.read_csv(pa.BufferReader(whole), parse_options=pa.csv.ParseOptions(newlines_in_values=True))
