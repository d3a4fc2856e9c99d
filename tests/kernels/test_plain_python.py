"""A model learns the same with the compiler switched off, where a debugger can step through its kernels."""

import json
import os
import subprocess
import sys

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose

from streamboost import SGBClassifier, SGBRegressor, datasets

pytestmark = pytest.mark.skipif(not numba.config.DISABLE_JIT, reason="the kernels are compiled")

LEARN = """
import json
from tests.kernels.test_plain_python import learned
print(json.dumps(learned()))
"""


def learned():
    """What small models predict after 120 rows, which refit trees, and a base of either kind learns."""
    X, y, *_ = datasets.friedman(120)
    X[::7, 2] = np.nan
    regressor, classifier = SGBRegressor(n_estimators=4), SGBClassifier(n_estimators=4)
    regressor.learn(X, y)
    classifier.learn(X[:60], y[:60] > y.mean())
    return [regressor.predict(X[:20]).tolist(), classifier.predict_proba(X[:20])[:, 1].tolist()]


def test_models_learn_the_same_without_the_compiler():
    settings = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    told = subprocess.run([sys.executable, "-c", LEARN], env=settings, check=True, stdout=subprocess.PIPE).stdout
    assert_allclose(learned(), json.loads(told), rtol=1e-12)
