"""The compiled functions of networks: their layers, their outputs and their steps."""
