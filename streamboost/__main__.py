"""``python -m streamboost`` is the command line."""

from streamboost.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
