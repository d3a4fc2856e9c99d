"""Networks of one convolution, forward and backward; the patches of an image are cut once for all learners."""

import numpy as np

from streamboost.kernels.compiling import compiled_inside
from streamboost.kernels.nets import layout
from streamboost.kernels.nets.activations import activate, through
from streamboost.kernels.nets.layout import Array, Ints, section_of
from streamboost.kernels.nets.outputs import speak
from streamboost.kernels.nets.products import add_dots, combine, sum_of


@compiled_inside
def cut_patches(Z: Array, plan: Ints, patches: Array) -> None:
    """Write what stands at each place of the kernel, for every position: (n, inputs * positions)."""
    k, stride, padding = plan[layout.KERNEL], plan[layout.STRIDE], plan[layout.PADDING]
    height, width, columns = plan[layout.HEIGHT], plan[layout.WIDTH], plan[layout.COLUMNS_OUT]
    for s in range(Z.shape[0]):
        image, cut = Z[s], patches[s]
        at = np.uint64(0)  # unsigned: no index could be meant from the end
        for c in range(plan[layout.DEPTH]):
            for u in range(k):
                for v in range(k):
                    for row in range(plan[layout.ROWS_OUT]):
                        y = row * stride + u - padding
                        start = (c * height + y) * width
                        for column in range(columns):
                            x = column * stride + v - padding
                            if padding == 0 or (y >= 0 and y < height and x >= 0 and x < width):
                                cut[at] = image[np.uint64(start + x)]
                            else:
                                cut[at] = 0
                            at += np.uint64(1)


@compiled_inside
def conv_forward(patches: Array, plan: Ints, parameters: Array, hidden: Array, out: Array) -> None:
    """Write the hidden layer (n, N C positions) and the output layer (n, N, m), in the learners' own units."""
    n = patches.shape[0]
    p, P, K = plan[layout.INPUTS], plan[layout.POSITIONS], plan[layout.LEARNERS] * plan[layout.UNITS]
    for s in range(n):
        for k in range(K):
            lanes = hidden[s, k * P : (k + 1) * P]
            lanes[:] = parameters[k * p + p - 1]
            combine(lanes, parameters, k * p, 1, patches[s], 0, P, p - 1)
        activate(hidden[s], plan[layout.ACTIVATION])
    speak(hidden.reshape(hidden.size), plan, parameters, out)


@compiled_inside
def add_conv_gradient(
    patches: Array, hidden: Array, error: Array, plan: Ints, parameters: Array, delta: Array, gradient: Array
) -> None:
    """Add to the gradient, as :func:`add_dense_gradient` does; ``delta`` is room for one learner's hidden layer."""
    n = patches.shape[0]
    N, C, p, P = plan[layout.LEARNERS], plan[layout.UNITS], plan[layout.INPUTS], plan[layout.POSITIONS]
    at_out, m, Q = section_of(plan, 1)
    at_intercepts = section_of(plan, 2)[0]
    lanes, errors = hidden.reshape(hidden.size), error.reshape(error.size)
    for i in range(N):
        for start in range(0, n, layout.BLOCK // 4):
            count = min(layout.BLOCK // 4, n - start)
            for k in range(m):
                g = at_out + (k * N + i) * Q
                e = (start * N + i) * m + k
                combine(gradient[g : g + Q], errors, e, N * m, lanes, (start * N + i) * Q, N * Q, count)
        for s in range(n):
            for k in range(m):
                gradient[at_intercepts + i * m + k] += error[s, i, k]
            delta[:] = 0
            combine(delta, errors, (s * N + i) * m, 1, parameters, at_out + i * Q, N * Q, m)
            through(delta, hidden[s, i * Q : (i + 1) * Q], plan[layout.ACTIVATION])
            for c in range(C):
                g = (i * C + c) * p
                back = delta[c * P : (c + 1) * P]
                add_dots(gradient[g : g + p - 1], back, patches[s])
                gradient[g + p - 1] += sum_of(back)
