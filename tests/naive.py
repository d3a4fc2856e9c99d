"""The paper's three algorithms, transcribed line by line: scalars, lists and loops.

Nothing here knows the package. The letters are the paper's (Hu et al., Gradient Boosting on Stochastic Data
Streams, AISTATS 2017) and the numbers in the comments are the lines of its Algorithms 1, 2 and 3. A score is a list
of m numbers; a hypothesis ``h`` is a function from a row ``x`` to such a list; a weak learner ``A`` has its present
hypothesis as ``A.h``, which ``A.update(x, target, weight)`` replaces. (Other people's models change where they
stand, so of those only the present hypothesis is to be had.)
"""

import copy
import math

import naive_tree
import numpy as np

# The algorithms


class Run:
    """What an algorithm left behind: for every t the partial sums, the prediction and the hypotheses."""

    def __init__(self):
        self.walks, self.predictions, self.hypotheses = [], [], []


def algorithm_1(stream, A, eta, y_0, gradient):
    """Streaming Gradient Boosting; ``stream`` gives a row, a target and a weight at a time."""
    N = len(A)
    run = Run()  # 2: every A[i] comes with its first hypothesis
    for x_t, z_t, w_t in stream:  # 3
        h = [A[i].h for i in range(N)]
        y = [list(y_0)]  # 4
        for i in range(1, N + 1):  # 5
            said = h[i - 1](x_t)
            y.append([y[i - 1][k] - eta * said[k] for k in range(len(y_0))])  # 6
        run.walks.append(y)
        run.predictions.append(y[N])  # 8
        run.hypotheses.append(h)
        for i in range(1, N + 1):  # 10
            nabla_i = gradient(y[i - 1], z_t)  # 11
            A[i - 1].update(x_t, nabla_i, w_t)  # 12, 13
    return run


def algorithm_2(stream, A, eta, y_0, gradient, project):
    """Residual projection, for losses that are not smooth; ``eta`` is η₁ … η_N.

    Line 8 as printed divides the N + 1 terms y⁰ … yᴺ by N. The mean of y¹ … yᴺ is taken instead.
    """
    N, m = len(A), len(y_0)
    run = Run()  # 2
    for x_t, z_t, w_t in stream:  # 3
        h = [A[i].h for i in range(N)]
        said = [h[i](x_t) for i in range(N)]
        y = [list(y_0)]  # 4
        for i in range(1, N + 1):  # 5
            y.append(project([y[i - 1][k] - eta[i - 1] * said[i - 1][k] for k in range(m)]))  # 6
        run.walks.append(y)
        run.predictions.append(mean_step(y))  # 8
        run.hypotheses.append(h)
        Delta = [0.0] * m  # 10
        for i in range(1, N + 1):  # 11
            nabla_i = gradient(y[i - 1], z_t)  # 12
            target = [Delta[k] + nabla_i[k] for k in range(m)]  # 13
            Delta = [Delta[k] + nabla_i[k] - said[i - 1][k] for k in range(m)]  # 14
            A[i - 1].update(x_t, target, w_t)  # 15
    return run


def algorithm_3(x, hypotheses, eta, y_0, project):
    """Predict ``x`` with the average over all hypotheses Algorithm 2 went through."""
    m, T = len(y_0), len(hypotheses)
    total = [0.0] * m
    for h in hypotheses:  # 2
        y = [list(y_0)]
        for i in range(1, len(h) + 1):  # 3
            said = h[i - 1](x)
            y.append(project([y[i - 1][k] - eta[i - 1] * said[k] for k in range(m)]))  # 4
        y_t = mean_step(y)  # 6, with the slip mended as above
        total = [total[k] + y_t[k] for k in range(m)]
    return [total[k] / T for k in range(m)]  # 8


def average_of_algorithm_1(x, hypotheses, eta, y_0):
    """y₀ − η Σᵢ h̄ᵢ(x) with h̄ᵢ = (1/T) Σ_t hᵢᵗ: lines 16 and 17 of Algorithm 1, and what it predicts with them."""
    T, N, m = len(hypotheses), len(hypotheses[0]), len(y_0)
    score = list(y_0)
    for i in range(N):
        for k in range(m):
            score[k] -= eta * sum(h[i](x)[k] for h in hypotheses) / T
    return score


def mean_step(y):
    """(1/N) Σ yⁱ over i = 1 … N."""
    return [sum(step[k] for step in y[1:]) / (len(y) - 1) for k in range(len(y[0]))]


# Other descents: the walk of one row, and where the gradient of each learner is taken


def nesterov(h, y_0, eta, momentum):
    """vⁱ = yⁱ + μᵢ(yⁱ − yⁱ⁻¹), yⁱ⁺¹ = vⁱ − η hᵢ₊₁; returns the yⁱ and the vⁱ."""
    y, v = [list(y_0)], [list(y_0)]
    for i in range(1, len(h) + 1):
        y.append([v[i - 1][k] - eta * h[i - 1][k] for k in range(len(y_0))])
        v.append([y[i][k] + momentum(i) * (y[i][k] - y[i - 1][k]) for k in range(len(y_0))])
    return y, v


def adagrad(h, y_0, eta):
    """Each coordinate's step divided by the root of the sum of squares so far; a coordinate never moved stays."""
    y, squares = [list(y_0)], [0.0] * len(y_0)
    for i in range(1, len(h) + 1):
        step = []
        for k in range(len(y_0)):
            squares[k] += h[i - 1][k] ** 2
            step.append(eta * h[i - 1][k] / math.sqrt(squares[k]) if squares[k] > 0 else 0.0)
        y.append([y[i - 1][k] - step[k] for k in range(len(y_0))])
    return y


def frank_wolfe(h, y_0, radius):
    """yⁱ = (1 − ηᵢ) yⁱ⁻¹ + ηᵢ vᵢ with ηᵢ = 2/(i + 1) and vᵢ = y⁰ − radius hᵢ/‖hᵢ‖."""
    y = [list(y_0)]
    for i in range(1, len(h) + 1):
        eta_i = 2 / (i + 1)
        norm = math.sqrt(sum(said**2 for said in h[i - 1]))
        v = [y_0[k] - (radius * h[i - 1][k] / norm if norm > 0 else 0.0) for k in range(len(y_0))]
        y.append([(1 - eta_i) * y[i - 1][k] + eta_i * v[k] for k in range(len(y_0))])
    return y


# Projections


def anywhere(y):
    return y


def onto_ball(radius):
    def project(y):
        norm = math.sqrt(sum(value**2 for value in y))
        return y if norm <= radius else [value * radius / norm for value in y]

    return project


def onto_box(low, high):
    return lambda y: [min(max(value, low), high) for value in y]


# Gradients by the score s at the target z, both lists


def squared(s, z):
    return [s[k] - z[k] for k in range(len(s))]


def absolute(s, z):
    return [float(np.sign(s[k] - z[k])) for k in range(len(s))]


def huber(delta):
    return lambda s, z: [min(max(s[k] - z[k], -delta), delta) for k in range(len(s))]


def quantile(tau):
    def one(s, z):
        if s == z:
            return 0.0
        return 1 - tau if s > z else -tau

    return lambda s, z: [one(s[k], z[k]) for k in range(len(s))]


def poisson(s, z):
    return [math.exp(s[k]) - z[k] for k in range(len(s))]


def logistic(s, z):
    return [-z[k] / (1 + math.exp(z[k] * s[k])) for k in range(len(s))]


def hinge(s, z):
    return [-z[k] if z[k] * s[k] < 1 else 0.0 for k in range(len(s))]


def softmax(s, z):
    odds = [math.exp(value) for value in s]
    return [odds[k] / sum(odds) - (1.0 if k == z[0] else 0.0) for k in range(len(s))]


def with_ridge(gradient, l2):
    """The gradient of ℓ(s) + l2 ‖s‖²."""

    def ridged(s, z):
        bare = gradient(s, z)
        return [bare[k] + 2 * l2 * s[k] for k in range(len(s))]

    return ridged


# Weak learners


class Learner:
    """A weak learner that has seen nothing says 0."""

    def __init__(self, m):
        self.m = m
        self.h = lambda x: [0.0] * m


class FromScratch(Learner):
    """Follow the leader: keep every row, and fit to all of them at each."""

    def __init__(self, m, fit):
        super().__init__(m)
        self.fit = fit
        self.X, self.targets, self.weights = [], [], []

    def update(self, x, target, weight):
        if weight == 0:
            return
        self.X.append(x)
        self.targets.append(target)
        self.weights.append(weight)
        rule = self.fit(np.array(self.X), np.array(self.targets), np.array(self.weights))
        self.h = lambda x: [float(value) for value in np.reshape(rule(np.array([x])), -1)]


def ridge(penalty, intercept_penalty=1e-3):
    """Weighted ridge regression by the normal equations, the intercept all but free."""

    def fit(X, targets, weights):
        Z = np.column_stack([np.nan_to_num(X), np.ones(len(X))])
        prior = np.diag([penalty] * X.shape[1] + [intercept_penalty])
        W = np.linalg.solve(Z.T @ (weights[:, None] * Z) + prior, Z.T @ (weights[:, None] * targets))
        return lambda X: np.column_stack([np.nan_to_num(X), np.ones(len(X))]) @ W

    return fit


def tree(**options):
    return lambda X, targets, weights: naive_tree.fit(X, targets, weights, **options)


def estimator(pattern):
    """Refit somebody's estimator, one for every output."""

    def fit(X, targets, weights):
        fitted = [copy.deepcopy(pattern).fit(X, target, sample_weight=weights) for target in targets.T]
        return lambda X: np.column_stack([model.predict(X) for model in fitted])

    return fit


class AdaGradLine(Learner):
    """A line for every output, moved by AdaGrad on ½(h(x) − target)²."""

    def __init__(self, m, d, rate, forget=1.0):
        super().__init__(m)
        self.rate, self.forget = rate, forget
        self.W = [[0.0] * (d + 1) for _ in range(m)]
        self.G = [[0.0] * (d + 1) for _ in range(m)]

    def update(self, x, target, weight):
        if weight == 0:
            return
        z, W = [*x, 1.0], copy.deepcopy(self.W)
        for k in range(self.m):
            error = sum(W[k][j] * z[j] for j in range(len(z))) - target[k]
            for j in range(len(z)):
                g = weight * error * z[j]
                self.G[k][j] = self.forget * self.G[k][j] + g * g
                if self.G[k][j] > 0:
                    W[k][j] -= self.rate * g / math.sqrt(self.G[k][j])
        self.W = W
        self.h = lambda x: [sum(row[j] * value for j, value in enumerate([*x, 1.0])) for row in W]


class RiverModels(Learner):
    """One River model for every output."""

    def __init__(self, m, pattern):
        super().__init__(m)
        self.models = [pattern.clone() for _ in range(m)]

    def update(self, x, target, weight):
        if weight == 0:
            return
        for model, goal in zip(self.models, target, strict=True):
            model.learn_one(dict(enumerate(x)), goal, w=weight)
        self.h = lambda x: [model.predict_one(dict(enumerate(x))) for model in self.models]


class PartialFits(Learner):
    """One scikit-learn model with ``partial_fit`` for every output."""

    def __init__(self, m, pattern):
        super().__init__(m)
        self.models = [copy.deepcopy(pattern) for _ in range(m)]

    def update(self, x, target, weight):
        if weight == 0:
            return
        for model, goal in zip(self.models, target, strict=True):
            model.partial_fit([x], [goal], sample_weight=[weight])
        self.h = lambda x: [float(model.predict([x])[0]) for model in self.models]
