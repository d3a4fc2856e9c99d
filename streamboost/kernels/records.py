"""Where the rows of a CSV text end, when some of its values are quoted and may hold line breaks."""

import numpy as np

from streamboost._types import IntArray
from streamboost.kernels.compiling import compiled

NEWLINE = 10
QUOTE = 34


@compiled
def quoted_ends(data: IntArray, delimiter: int) -> IntArray:
    """The position after each line break that ends a row of bytes ``data``, which start outside quotes.

    As Arrow reads it: a quote opens at the start of a field only, and a doubled one within quotes is a character.
    """
    ends = np.empty(np.count_nonzero(data == NEWLINE), np.int64)
    n_ends = 0
    is_quoted = False
    is_start = True
    i = 0
    while i < len(data):
        byte = data[i]
        if is_quoted:
            if byte == QUOTE:
                if i + 1 < len(data) and data[i + 1] == QUOTE:
                    i += 1
                else:
                    is_quoted = False
        elif byte == QUOTE and is_start:
            is_quoted = True
            is_start = False
        elif byte == NEWLINE:
            ends[n_ends] = i + 1
            n_ends += 1
            is_start = True
        else:
            is_start = byte == delimiter
        i += 1
    return ends[:n_ends]
