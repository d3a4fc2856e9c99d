"""Data to try things on: three small sets that travel with the package, and a generated stream."""

from streamboost.datasets.loaders import Dataset, friedman, load_a9a, load_abalone, load_electricity, shipped_file

__all__ = ["Dataset", "friedman", "load_a9a", "load_abalone", "load_electricity", "shipped_file"]
