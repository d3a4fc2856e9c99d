"""``python -m experiments``: see :mod:`experiments.runner`."""

from experiments.runner import main

if __name__ == "__main__":
    main()
