"""The command line: ``streamboost run``, ``predict``, ``inspect``, ``compare``, ``theory``, ``serve``, ``demo``,
``warmup``, ``paper``.
"""

from streamboost.cli.app import main

__all__ = ["main"]
