"""A model for each key: for each store, sensor or customer, in one process and in bounded memory.

::

    KeyedModel       rows divided by key (rows), answers put together (answers)
      ├─ model       of each key: a copy of a template, on a prior if there is one (prior)
      └─ KeyStore    the models of cold keys, on disk (store)
"""

from streamboost.keyed.model import KeyedModel
from streamboost.keyed.prior import small_classifier, small_regressor
from streamboost.keyed.store import from_bytes, to_bytes

__all__ = ["KeyedModel", "from_bytes", "small_classifier", "small_regressor", "to_bytes"]
