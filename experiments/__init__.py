"""The paper's experiments again: one module for each figure or table, and a page that puts paper and ours side by side.

    python -m experiments [--quick] [--only NAME ...] [--again]

``registry`` lists the modules, ``runner`` runs them, ``records`` keeps what they found as JSON, ``page`` writes
``results/report.html``. A module has

- ``TITLE`` and ``INTRODUCTION``: strings for the page;
- ``FULL`` and ``QUICK``: sizes, as plain dictionaries;
- ``run(mode, seeds, progress) -> dict``: what was found, of numbers, strings, lists and dictionaries only;
- ``NEEDS``, if it builds on the records of others: their names; ``run`` is then given each record under its name;
- ``draw(record, folder) -> list of (name, caption)``: pictures, each as ``name.png`` and ``name.svg`` in the folder;
- ``compare(record) -> list of Row``: the lines *paper | ours | why they differ*, every number taken from the record.
"""
