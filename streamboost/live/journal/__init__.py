"""The journal of a live model: rows to be learned, rows that wait for their labels, labels that wait for their rows.

One SQLite file in WAL mode. What belongs together is written in one transaction: a row leaves those that wait in the
moment in which it enters the entries to be learned. Entries are numbered 1, 2, 3, ... for ever; whoever learns them
remembers the number of the last one, reads the later ones again after a crash, and has the older ones deleted.

::

    entries    rows with targets, to be learned in this order
    rows       by key: those that wait for a label, and those learned a while ago, should the label be corrected
    early      labels by key that came before their row
    ids        of requests that were answered, with the answers
    counts     how many there are of everything, so that nobody has to count

The journal knows no model. All threads share one connection, and one lock: whoever has a :class:`Transaction` is alone.
Everything that is read again after a crash carries a checksum.
"""

from streamboost.live.journal.file import Journal
from streamboost.live.journal.records import Entry, KeyedRow, PackedRow, read_table, table_bytes
from streamboost.live.journal.transactions import Transaction

__all__ = ["Entry", "Journal", "KeyedRow", "PackedRow", "Transaction", "read_table", "table_bytes"]
