"""Predict, then learn, for any model: the loop, its adapters, scores, metrics and reports; no files."""
