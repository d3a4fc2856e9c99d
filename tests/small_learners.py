"""Learners that stacks are made of: a fitting function, and a pipeline of River's."""

import numpy as np
from river import linear_model, preprocessing


def nearest(X, target, weight):
    """The target of the nearest remembered row."""
    known = np.nan_to_num(X)
    return lambda X: target[((np.nan_to_num(X)[:, None] - known) ** 2).sum(axis=2).argmin(axis=1)]


def river_line():
    return preprocessing.StandardScaler() | linear_model.LinearRegression()
