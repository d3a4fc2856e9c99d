"""The mutants: small changes of the source, each of which breaks an idea that some test holds.

Every mutant is a text that occurs exactly once in its file (a test sees to that), what is put in its place, the tests
that should notice, and a word on the idea. Whoever changes such a line changes the mutant with it.
"""

from typing import NamedTuple


class Mutant(NamedTuple):
    """A change of one file, and the tests that should notice it."""

    name: str
    path: str
    old: str
    new: str
    tests: str  # files or folders, apart by spaces
    breaks: str


DESCENTS = "tests/test_descents.py tests/test_descent_contract.py tests/boosting/test_naive.py"
BOOSTING = "tests/boosting"
LOSSES = "tests/losses tests/test_contracts.py"
TREES = "tests/stacks/test_tree.py tests/features/test_binning.py"
LOOPS = "tests/boosting/test_tree_loop.py tests/boosting/test_naive.py"
REPLAY = "tests/test_replay.py tests/boosting"
BASES = "tests/test_bases.py tests/test_base_contract.py tests/boosting/test_tree_loop.py"
FEATURES = "tests/features"
PERSISTENCE = "tests/persistence"
RUNS = "tests/runs"

_DESCENTS = "streamboost/descents.py"
_BOOSTER = "streamboost/boosting/booster.py"
_COMMITTEE = "streamboost/boosting/committee.py"
_PLAIN = "streamboost/boosting/loops/plain.py"
_HEDGE = "streamboost/kernels/hedge.py"
_COMBINING = "streamboost/kernels/combining.py"
_DRIFT = "streamboost/boosting/drift_replacement.py"
_LOSSES = "streamboost/losses/builtin.py"
_CLASS_LOSSES = "streamboost/losses/classes.py"
_LOSS_KERNELS = "streamboost/kernels/losses.py"
_TREE = "streamboost/stacks/tree.py"
_GROWING = "streamboost/kernels/tree_growing.py"
_SPLITS = "streamboost/kernels/splits.py"
_TREE_ROWS = "streamboost/kernels/tree_rows.py"
_LOOP = "streamboost/kernels/tree_loop.py"
_REPLAY = "streamboost/replay.py"
_REPLAY_KERNELS = "streamboost/kernels/replay.py"
_BASES = "streamboost/bases.py"
_BASE_KERNELS = "streamboost/kernels/bases.py"
_LINEAR = "streamboost/kernels/linear.py"
_BINNING = "streamboost/features/binning.py"
_ENCODER = "streamboost/features/encoder.py"
_LABELS = "streamboost/features/labels.py"
_SNAPSHOTS = "streamboost/persistence/snapshots.py"
_CHECKPOINTS = "streamboost/persistence/checkpoints.py"
_SEGMENTS = "streamboost/persistence/segments.py"
_GRAPH = "streamboost/persistence/object_graph.py"
_GUARD = "streamboost/runs/guard.py"
_BUILT_HEDGE = "streamboost/boosting/hedge.py"
_RESERVOIR = "streamboost/boosting/reservoir.py"
_REGRET = "streamboost/theory/regret.py"
_DEFAULTS = "streamboost/estimators/defaults.py"
CONSTANTS = "tests/boosting/test_constants.py"

MUTANTS = [
    # Descents: the paper's algorithms.
    Mutant("descent-sign", _DESCENTS, "np.multiply(h, -eta[:, None]", "np.multiply(h, eta[:, None]", DESCENTS,
           "a step goes against what a learner says"),
    Mutant("descent-eta-index", _DESCENTS, "self.domain.project(walk[:, i - 1] - eta[i - 1] * h[:, i - 1])",
           "self.domain.project(walk[:, i - 1] - eta[max(i - 2, 0)] * h[:, i - 1])", DESCENTS, "step i takes ηᵢ"),
    Mutant("descent-no-projection", _DESCENTS, "self.domain.project(walk[:, i - 1] - eta[i - 1] * h[:, i - 1])",
           "walk[:, i - 1] - eta[i - 1] * h[:, i - 1]", DESCENTS, "partial sums stay in the domain"),
    Mutant("descent-ball", _DESCENTS, "np.maximum(norm, self.radius)", "np.maximum(norm, 1.0)", DESCENTS,
           "a ball has its radius"),
    Mutant("descent-residual-sign", _DESCENTS, "y[:, None]) - h, axis=1)", "y[:, None]) + h, axis=1)",
           DESCENTS, "Δ carries what was not said"),
    Mutant("descent-no-residual", _DESCENTS, "return self.residuals(walk, h, loss, y) + h",
           "return loss.gradient(walk[:, :-1], y[:, None])", DESCENTS, "algorithm 2 feeds Δ + ∇"),
    Mutant("descent-next-residual", _DESCENTS, "target += self.residuals(walk, h, loss, y)[:, -1]", "pass", DESCENTS,
           "the learner after the last is fed Δ_N + ∇"),
    Mutant("descent-mean", _DESCENTS, "walk[:, 1:].mean(axis=1)", "walk.mean(axis=1)", DESCENTS,
           "the mean is over y¹ … yᴺ, without y⁰"),
    Mutant("descent-steps", _DESCENTS, "return c / np.arange(1, n_learners + 1)",
           "return c / np.arange(2, n_learners + 2)", DESCENTS, "steps are 1/(λ i)"),
    Mutant("descent-theory", _DESCENTS, "(beta * (8.0 - 4.0 * gamma))", "(beta * (8.0 + 4.0 * gamma))",
           DESCENTS + " tests/theory", "the step of theorem 1"),
    Mutant("descent-frank-wolfe", _DESCENTS, "2.0 / np.arange(2, n_learners + 2)", "2.0 / np.arange(3, n_learners + 3)",
           DESCENTS, "rates are 2/(i + 1)"),
    Mutant("descent-nesterov", _DESCENTS, "self._momenta(walk.shape[1] - 1)[:, None] * (walk[:, 1:] - walk[:, :-1])",
           "0.0 * (walk[:, 1:] - walk[:, :-1])", DESCENTS, "gradients are taken ahead of the walk"),
    Mutant("descent-adagrad", _DESCENTS, "np.cumsum(h**2, axis=1)", "np.cumsum(np.abs(h), axis=1)", DESCENTS,
           "AdaGrad sums squares"),
    # The booster.
    Mutant("booster-eta-order", _BOOSTER, "Hypothesis(self.base, self.stack, self.eta)",
           "Hypothesis(self.base, self.stack, self.eta[::-1])", BOOSTING, "step sizes in their order"),
    Mutant("booster-average", _BOOSTER, "walk /= len(self.past.kept)", "walk /= len(self.past.kept) + 1", BOOSTING,
           "the average over hypotheses"),
    Mutant("booster-recorded", _BOOSTER, 'if replay.targets == "recorded":', 'if replay.targets != "recorded":',
           BOOSTING, "refits take fresh targets"),
    Mutant("booster-fresh-eta", _PLAIN, "h, booster.eta[:i])", "h, booster.eta[-i:] if i else booster.eta[:0])",
           BOOSTING, "fresh targets walk with η₁ … ηᵢ"),
    Mutant("booster-one-row", _BOOSTER, "scale = scale._replace(spread=0.0)", "pass", BOOSTING,
           "one row tells no spread"),
    Mutant("booster-minibatch", _BOOSTER, 'return 1 if self.update_mode == "sequential" else max(n, 1)', "return 1",
           BOOSTING, "a mini-batch shares one step"),
    Mutant("booster-split", _BOOSTER, "self.eta = self.eta / 2.0", "pass", BOOSTING + " tests/estimators",
           "steps are halved when a score is split"),
    # The committee, the hedge, and who takes over after a drift.
    Mutant("committee-reads-second", _PLAIN, "read_out(walks[0], model.readout)", "read_out(walks[-1], model.readout)",
           BOOSTING, "'last' reads the longest memory"),
    Mutant("committee-experts", _PLAIN, "walks[b][:, : step + 1]", "walks[b][:, : max(step, 1)]", BOOSTING,
           "an expert is the partial sum after its step"),
    Mutant("loops-a-read-moves", "streamboost/boosting/loops/trees.py", "if not is_member:", "if True:", BOOSTING,
           "reading one booster leaves its committee's buffers as they are"),
    Mutant("committee-grow", _COMMITTEE, "expert[1] += k", "expert[1] += 0", BOOSTING,
           "the whole sum stays an expert when learners are added"),
    Mutant("hedge-decay", _HEDGE, "losses[v, e] = fade * losses[v, e] +", "losses[v, e] = losses[v, e] +", BOOSTING,
           "losses fade"),
    Mutant("hedge-weighted-decay", _HEDGE, "decays[v] ** elapsed", "decays[v]", BOOSTING,
           "a row of weight 2 fades twice"),
    Mutant("hedge-information", _HEDGE, "w * information(counts)", "w", BOOSTING,
           "rows of rare classes pass less of a half-life"),
    Mutant("hedge-sign", _HEDGE, "math.exp(-(losses[e] - best)", "math.exp((best - losses[e]) * 0.5", BOOSTING,
           "odds are exp(-loss / temperature)"),
    Mutant("hedge-meta", _HEDGE, "first, n = (0, E) if v < V else (E, V)", "first, n = (0, E) if v < V else (0, V)",
           BOOSTING, "the voters are weighed by what they lost themselves"),
    Mutant("hedge-share", _HEDGE, "LOG_SHARE, WRONG_SHARE, SURPRISE = 0.1, 0.5,",
           "LOG_SHARE, WRONG_SHARE, SURPRISE = 0.1, 0.0,", BOOSTING, "a wrong class costs more than its log loss"),
    Mutant("combining-decay", _COMBINING, "A[i, j] = keep * A[i, j] + w * total", "A[i, j] = A[i, j] + w * total",
           BOOSTING, "rows fade from the combination"),
    Mutant("combining-centre", _COMBINING, "features[i, k] -= mean", "features[i, k] -= 0.0", BOOSTING,
           "the second derivatives of softmax are diag(p) - p pᵀ"),
    Mutant("drift-sign", _DRIFT, "if total > SIGMAS * error and", "if total < SIGMAS * error and", BOOSTING,
           "a challenger has to be better"),
    Mutant("drift-proof", _DRIFT, "if rows < PROOF_ROWS:", "if rows < PROOF_ROWS // 8:", BOOSTING,
           "a challenger needs so many rows"),
    Mutant("drift-suspicion", _DRIFT, "SUSPICION = 0.85", "SUSPICION = 0.1", BOOSTING,
           "a shorter memory that is better raises suspicion"),
    Mutant("drift-wait", _DRIFT, "min(2 * self.wait, LONGEST_WAIT)", "self.wait", BOOSTING,
           "after a lost duel the next waits twice as long"),
    # Losses.
    Mutant("loss-huber", _LOSSES, "curved * (error - 0.5 * curved)", "curved * (error - curved)", LOSSES,
           "Huber's parabola"),
    Mutant("loss-quantile", _LOSSES, "(1.0 - self.tau) * (score > y) - self.tau * (score < y)",
           "self.tau * (score > y) - (1.0 - self.tau) * (score < y)", LOSSES, "which side of the quantile is steeper"),
    Mutant("loss-poisson", _LOSSES, "return np.exp(np.minimum(score, LARGEST_EXPONENT)) - y",
           "return np.exp(np.minimum(score, LARGEST_EXPONENT)) + y", LOSSES, "the gradient is the mean minus y"),
    Mutant("loss-logistic", _CLASS_LOSSES, "return -y * Logistic.link.predict(-y * score)",
           "return -y * Logistic.link.predict(y * score)", LOSSES, "the probability of the other class"),
    Mutant("loss-logistic-curvature", _CLASS_LOSSES, "smoothness=0.25", "smoothness=0.125", LOSSES + " tests/theory",
           "the curvature of the logistic loss is at most ¼"),
    Mutant("loss-kernel-squared", _LOSS_KERNELS, "targets[i, k] = walk[i, k] - goal",
           "targets[i, k] = goal - walk[i, k]", LOOPS, "compiled targets have the sign of the gradient"),
    Mutant("loss-kernel-carried", _LOSS_KERNELS, "carried = targets[i, k] - h[i, k]", "carried = targets[i, k]", LOOPS,
           "compiled residuals leave out what was said"),
    Mutant("loss-kernel-quantile", _LOSS_KERNELS, "return 1.0 - option if s > y", "return option if s > y", LOOPS,
           "compiled quantiles know their sides"),
    Mutant("loss-kernel-ridge", _LOSS_KERNELS, "targets[i, k] += 2.0 * ridge * walk[i, k]",
           "targets[i, k] += ridge * walk[i, k]", LOOPS, "the gradient of λ‖s‖² is 2λs"),
    # Trees.
    Mutant("tree-min-samples", _SPLITS, "(n_left >= min_samples_leaf) & (n_right >= min_samples_leaf)",
           "(n_left >= 1) & (n_right >= 1)", TREES, "min_samples_leaf is kept"),
    Mutant("tree-missing-side", _SPLITS, "n_missing == 0.0 else side == 1", "n_missing == 0.0 else side == 0", TREES,
           "missing values go where the gain was"),
    Mutant("tree-tie", _SPLITS, "if g > gain * (1.0 + 1e-10) + noise:", "if g >= gain * (1.0 - 1e-10) - noise:", TREES,
           "ties go to the first split"),
    Mutant("tree-l2", _SPLITS, "n_right, w_right = total[last] - n_left, total[m] - w_left + l2",
           "n_right, w_right = total[last] - n_left, total[m] - w_left", TREES, "both sides are pulled towards 0"),
    Mutant("tree-monotone", _GROWING, "(low, midway, midway, high) if sign > 0", "(low, high, low, high) if sign > 0",
           TREES, "bounds of a rising column part midway"),
    Mutant("tree-levels", _SPLITS, "_left_levels(order, b + 1, n,", "_left_levels(order, b, n,", TREES,
           "categories off by one"),
    Mutant("tree-depth", _GROWING, "if level < depth and stop - start >= 2 * min_samples_leaf:",
           "if level < depth - 1 and stop - start >= 2 * min_samples_leaf:", TREES, "max_depth is reached"),
    Mutant("tree-threshold", _TREE_ROWS, "goes_left = (v <= cut) |", "goes_left = (v < cut) |", TREES,
           "a value at the threshold goes left"),
    Mutant("tree-missing-read", _TREE_ROWS, "goes_left = (v <= cut) | (missing_left[p] & (v != v))",
           "goes_left = (v <= cut) | (v != v)", TREES,
           "missing values are read where they were learned"),
    Mutant("tree-forget", _TREE_ROWS, "fade = (forget - 1.0) / weight if weight >= forget else 1.0", "fade = 1.0",
           TREES, "leaves forget"),
    Mutant("tree-weight", _TREE_ROWS, "stats[at, k] = stats[at, k] * fade + w * targets[i, k]",
           "stats[at, k] = stats[at, k] * fade + targets[i, k]", TREES + " tests/boosting",
           "a leaf learns weighted rows"),
    Mutant("tree-read-l2", _TREE_ROWS, "weight = at[m] + l2", "weight = at[m]", TREES, "leaves are pulled towards 0"),
    Mutant("tree-drawn", _TREE, "feature[feature >= 0] = columns[feature[feature >= 0]]", "pass", TREES,
           "columns that were drawn keep their numbers"),
    Mutant("tree-loop-warm", _LOOP, "if w > 0.0 and counts[r, WARM] and not", "if w > 0.0 and not", LOOPS,
           "leaves learn nothing before the first refit"),
    Mutant("tree-loop-hedge-weight", _LOOP, "learn_hedge(rule, expert_scores, early_scores, target, w,",
           "learn_hedge(rule, expert_scores, early_scores, target, 1.0,", BOOSTING, "the hedge counts weights"),
    Mutant("tree-loop-recall", _LOOP, "learn_hedge(rule, expert_scores, early_scores, target, w,",
           "learn_hedge(rule, early_scores, early_scores, target, w,", "tests/estimators/test_expert_scores.py",
           "the vote learns from what is said now"),
    # The memory.
    Mutant("replay-interval", _REPLAY_KERNELS, "int(every * share * math.sqrt(share))", "int(every * share)",
           REPLAY, "the same in the compiled loop"),
    Mutant("replay-turn", _REPLAY, "self.turn = (self.turn + 1) % len(learners)", "self.turn = 0", REPLAY,
           "learners take turns"),
    Mutant("replay-order", _REPLAY, "(int(self.counts[AT]) - n + np.arange(n)) % len(self._X)",
           "(int(self.counts[AT]) - 1 - np.arange(n)) % len(self._X)", REPLAY, "the newest rows, oldest first"),
    Mutant("replay-weightless", _REPLAY, "self.bins.fit(X if counts.all() else X[counts])", "self.bins.fit(X)", REPLAY,
           "a row of weight 0 leaves no trace"),
    Mutant("replay-fresh-sign", _REPLAY_KERNELS, "scores[s, 0] -= (a + b) + (c + e)",
           "scores[s, 0] += (a + b) + (c + e)", REPLAY, "fresh targets walk against what is said"),
    Mutant("replay-fresh-residual", _REPLAY_KERNELS, "target[s, k] -= moved / eta[j] if eta[j] > 0.0 else 0.0",
           "target[s, k] -= 0.0", REPLAY, "fresh targets of algorithm 2 carry residuals"),
    # Bases.
    Mutant("base-intercept", _BASES, "new[-1] = score", "new[0] = score", BASES + " tests/estimators",
           "a new class starts at its score"),
    Mutant("base-split", _BASES, "np.concatenate([-self.weights / 2, self.weights / 2], axis=1)",
           "np.concatenate([-self.weights, self.weights], axis=1)", BASES + " tests/estimators",
           "half a score against and half for"),
    Mutant("base-shrink", _BASE_KERNELS, "(sizes[c, level, k] + SHRINK)", "sizes[c, level, k]", BASES,
           "effects of levels are pulled to 0"),
    Mutant("base-signs", _BASE_KERNELS, "signs[j] * line.weights[j, k] < 0.0", "signs[j] * line.weights[j, k] > 0.0",
           BASES + " tests/estimators", "weights of the wrong sign count as 0"),
    Mutant("base-clip", _LINEAR, "there = clip if there > clip else there", "there = there", BASES + " tests/features",
           "inputs are cut off at 5 deviations"),
    Mutant("base-gain", _LINEAR, "gain = w / (1.0 + w * max(zPz, 0.0))", "gain = w / (1.0 + max(zPz, 0.0))",
           BASES + " tests/stacks/test_linear.py", "least squares counts weights"),
    # Rows to numbers.
    Mutant("bins-frequent", _BINNING, 'np.argsort(-counts, kind="stable")', 'np.argsort(counts, kind="stable")',
           FEATURES, "the frequent levels have bins"),
    Mutant("encoder-room", _ENCODER, "range(len(known), bound)", "range(len(known), bound + 1)", FEATURES,
           "levels beyond the bound share a code"),
    Mutant("encoder-others", _ENCODER, "others = NAN if len(codes) < bound else bound", "others = NAN", FEATURES,
           "unknown levels are among the others once there is no room"),
    Mutant("encoder-in-place", _ENCODER, "grown = copy.copy(encoder)", "grown = encoder", FEATURES,
           "encoding changes nothing until rows are learned"),
    Mutant("encoder-infinite", _ENCODER, "True not in map(math.isinf, values)", "True", FEATURES,
           "the quick path refuses infinity"),
    Mutant("encoder-code", _ENCODER, "return NAN if code is None and known_only else code",
           "return 0.0 if code is None and known_only else code", FEATURES, "an unknown level is missing"),
    Mutant("labels-number", _LABELS, "new.setdefault(plain, len(self) + len(new))", "new.setdefault(plain, len(new))",
           FEATURES, "new classes come after known ones"),
    # Files.
    Mutant("snapshot-checksum", _SNAPSHOTS, "or data[at : at + len(BLANK)] != _checksum(data, at)", "or False",
           PERSISTENCE, "the checksum is compared"),
    Mutant("snapshot-checksum-part", _SNAPSHOTS, "digest.update(view[at + len(BLANK) :])",
           "digest.update(view[at + len(BLANK) : -1])", PERSISTENCE, "the checksum covers every byte"),
    Mutant("snapshot-newer", _SNAPSHOTS, "version > VERSION_WITH_SEGMENTS:", "version > VERSION_WITH_SEGMENTS + 1:",
           PERSISTENCE, "newer formats are told apart from damage"),
    Mutant("segments-checksum", _SEGMENTS, "if digest != found:", "if False:", PERSISTENCE, "every tile is checked"),
    Mutant("segments-kept", _CHECKPOINTS, "{name for path in self.paths() for",
           "{name for path in self.paths()[-1:] for", PERSISTENCE, "segments that the older checkpoint needs stay"),
    Mutant("segments-order", _CHECKPOINTS, "            snapshots.save(checkpoint,",
           "            self._segments.keep_only(set())\n            snapshots.save(checkpoint,",
           PERSISTENCE, "segments are removed after the new checkpoint is there"),
    Mutant("segments-again", _SEGMENTS, "for digest in group if digest not in self._places}", "for digest in group}",
           PERSISTENCE, "what is there is not written again"),
    Mutant("segments-lost", _SEGMENTS, "        self._forget_lost()", "        pass", PERSISTENCE,
           "segments that are gone are written again"),
    Mutant("snapshot-zero", _GRAPH, 'return struct.pack(">d", a) == struct.pack(">d", b)', "return a == b", PERSISTENCE,
           "states are compared bit for bit"),
    Mutant("checkpoint-kept", _CHECKPOINTS, "paths[: len(paths) + 1 - self.keep]", "paths[: len(paths) - self.keep]",
           PERSISTENCE, "two checkpoints are kept"),
    Mutant("checkpoint-number", _CHECKPOINTS, "for path in reversed(checkpoint_paths(directory)):",
           "for path in checkpoint_paths(directory):", PERSISTENCE, "the newest checkpoint is taken"),
    # Guards.
    Mutant("guard-limit", _GUARD, "ABSURD = 1e6", "ABSURD = 1e7", RUNS, "how large a gradient may be"),
    Mutant("guard-settled", _GUARD, "n_before >= SETTLED", "n_before >= 0", RUNS,
           "first targets are not absurd beside nothing"),
    Mutant("guard-mean", _GUARD, "- self.mean_square) * len(y) / self.n", "- self.mean_square) / self.n", RUNS,
           "the size of targets is their mean square"),
    Mutant("guard-infinite", _GUARD, "np.flatnonzero(np.isinf(column.to_numpy()))",
           "np.flatnonzero(np.isposinf(column.to_numpy()))", RUNS, "infinite columns of either sign are bad"),
    Mutant("guard-hides", _GUARD, "n_before[row + 1 :] -= 1", "pass", RUNS, "an absurd row hides none after it"),
    # What constants are for, and conditions that few streams meet.
    Mutant("constant-huber-delta", _LOSSES, "LINEAR_STEP * unit / self.delta)", "LINEAR_STEP * unit)", CONSTANTS,
           "steps under Huber's loss know its unit"),
    Mutant("constant-log-share", _HEDGE, "SURPRISE = 0.1, 0.5,", "SURPRISE = 0.2, 0.5,", CONSTANTS,
           "a wrong label counts as five units of log loss"),
    Mutant("constant-caution", _BUILT_HEDGE, "CAUTION = 4.0", "CAUTION = 1.0", CONSTANTS,
           "voters listen to several experts"),
    Mutant("constant-margin", _DRIFT, "MARGIN = 0.03", "MARGIN = 0.0", CONSTANTS,
           "memory is not dropped for a little"),
    Mutant("constant-shrink", _BASE_KERNELS, "SHRINK = 2.0", "SHRINK = 0.5", CONSTANTS, "rare levels add little"),
    Mutant("constant-widest", _BASES, "WIDEST = 200", "WIDEST = 20", CONSTANTS,
           "lines of some dozen columns are found by least squares"),
    Mutant("constant-polynomial", _BOOSTER, '"polynomial": 8.0', '"polynomial": 4.0', CONSTANTS,
           "a polynomial average is mostly of the last tenth"),
    Mutant("drift-lost-early", _DRIFT, "rows >= PATIENCE or total < -SIGMAS * error", "rows >= PATIENCE", CONSTANTS,
           "who has certainly lost leaves at once"),
    Mutant("drift-fill", _DRIFT, "longest.fill > 2 * HEAD_START and bool", "bool", CONSTANTS,
           "a memory that is little longer than a head start is not challenged"),
    Mutant("drift-centred", _DRIFT, "squares - total**2 / rows", "squares", CONSTANTS,
           "the variance is about the mean"),
    Mutant("drift-win-wait", _DRIFT, "self._end(committee, WAIT)", "self._end(committee, self.wait)", CONSTANTS,
           "after a win the next wait is short"),
    Mutant("drift-levels", _DRIFT, "if committee.categorical:", "if False:", CONSTANTS,
           "a challenger knows columns of levels"),
    Mutant("hedge-weight-0", _BUILT_HEDGE, "if weight <= 0:", "if weight < 0:", CONSTANTS,
           "a row of weight 0 is no row of a paired test"),
    Mutant("loss-softmax-tie", _CLASS_LOSSES, "n_equal = np.count_nonzero(score >= own - TIE, axis=-1)",
           "n_equal = np.count_nonzero(score >= own, axis=-1)", CONSTANTS,
           "classes that rounding tells apart are level"),
    Mutant("base-effect-weight", _BASE_KERNELS, "effects[c, level, k] -= weight[s] * left /",
           "effects[c, level, k] -= left /", CONSTANTS, "means of levels count weights"),
    Mutant("base-fade", _BASE_KERNELS, "kept = keep**n", "kept = keep", CONSTANTS, "slopes fade once a row"),
    Mutant("reservoir-biased", _RESERVOIR, "self.rng.integers(self.seen)",
           "self.rng.integers(self.seen + self.capacity)", "tests/boosting/test_reservoir.py",
           "each thing has the same chance"),
    Mutant("guard-infinite-columns", _GUARD, "        if pa.types.is_floating(column.type):\n            for row",
           "        if False:\n            for row", "tests/runs/test_guard.py", "infinite columns are bad"),
    Mutant("guard-large-classes", _GUARD, "(np.abs(numbers) < 2**53) & ", "", "tests/runs/test_guard.py",
           "numbers that floats do not tell apart are no classes"),
    Mutant("regret-comparator-loss", _REGRET, "max(meter.loss_bound, _largest(booster.loss.value(scores, y)))",
           "meter.loss_bound", "tests/theory/test_regret.py", "B is at least what the comparator loses"),
    Mutant("constant-median", _DEFAULTS, "(1.0 if isinstance(loss, Absolute) else 2.0)", "1.0", CONSTANTS,
           "the median takes the steps of absolute errors"),
    Mutant("base-intercept-sign", _BASE_KERNELS, "is_wrong = j < signs.shape[0] and signs[j]",
           "is_wrong = signs.shape[0] > 0 and signs[min(j, signs.shape[0] - 1)]", CONSTANTS,
           "an intercept may have any sign"),
]  # fmt: skip
