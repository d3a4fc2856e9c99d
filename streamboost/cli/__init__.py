"""The command line: ``streamboost run``, ``predict``, ``inspect``, ``compare``, ``serve``, ``demo``, ``paper``."""

from streamboost.cli.app import main

__all__ = ["main"]
