"""The journal of a live model: rows to be learned, rows that wait for their labels, labels that wait for their rows.

One SQLite file in WAL mode. What belongs together is written in one transaction: a row leaves those that wait in the
moment in which it enters the entries to be learned. Entries are numbered 1, 2, 3, ... for ever; whoever learns them
remembers the number of the last one, reads the later ones again after a crash, and has the older ones deleted.

::

    entries    rows with targets, to be learned in this order
    rows       by key: those that wait for a label, and those learned a while ago, should the label be corrected
    ripe       rows to be learned next: their label came before them, or none came in time
    early      labels by key that came before their row
    ids        of requests that were answered, with the answers
    counts     how many there are of everything, so that nobody has to count

Whether a row is ripe is settled by requests and their times, in the transaction of the request, not by whoever looks
later; so the same requests make the same entries.

The journal knows no model. All threads share one connection, and one lock: whoever has a :class:`Transaction` is alone.
Every line of every table carries a checksum, entries and transactions are numbered, and the number of the last
transaction is kept in a file beside: damage is told when the file is opened, and never taken for an earlier end.
"""

from streamboost.live.journal.file import Journal
from streamboost.live.journal.records import Entry, KeyedRow, PackedRow, RipeRow, read_table, table_bytes
from streamboost.live.journal.transactions import Transaction

__all__ = ["Entry", "Journal", "KeyedRow", "PackedRow", "RipeRow", "Transaction", "read_table", "table_bytes"]
