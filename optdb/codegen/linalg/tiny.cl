/* Kernels for many small matrices: each vector lane has one matrix, padded to SIDE rows with rows of the identity.

V is a vector of WIDTH lanes, or a number where WIDTH is 1. */

KERNEL_WORD void CHOLESKY_SIDE(ga_size count, ga_size n, ARRAY T *x, ga_ssize xb, ga_ssize x0, ga_ssize x1,
    ARRAY T *z, ga_ssize zb, ga_ssize z0, ga_ssize z1, ARRAY ga_int *info)
{
    const int side = (int)n;
    for (ga_size first = get_global_id(0) * WIDTH; first < count; first += get_global_size(0) * WIDTH) {
        const int here = (int)min((ga_size)WIDTH, count - first);
        V held;
        W *const lanes = (W *)&held;
        V l[SIDE][SIDE];
        UNROLLED(i, SIDE)
            #pragma unroll
            for (int k = 0; k <= i; ++k) {
                for (int c = 0; c < WIDTH; ++c)
                    lanes[c] = i == k;
                if (i < side)
                    for (int c = 0; c < here; ++c)
                        lanes[c] = x[(ga_ssize)(first + c) * xb + i * x0 + k * x1];
                l[i][k] = held;
            }
        UNROLLED(k, SIDE) {
            const V pivot = l[k][k];
            l[k][k] = sqrt(POSITIVE);
            const V inverse = (V)1 / l[k][k];
            UNROLLED_RANGE(i, k + 1, SIDE, 1)
                l[i][k] *= inverse;
            UNROLLED_RANGE(j, k + 1, SIDE, 1) UNROLLED_RANGE(i, j, SIDE, 1)
                l[i][j] -= l[i][k] * l[j][k];
        }
        /* Starting with the first pivot that is not positive, all pivots are NaN, including those in the padding. */
        bool failed[WIDTH], any_failed = false;
        held = l[SIDE - 1][SIDE - 1];
        for (int c = 0; c < here; ++c) {
            failed[c] = isnan(lanes[c]);
            any_failed |= failed[c];
            info[first + c] = 0;
        }
        #pragma unroll
        for (int k = SIDE - 1; k >= 0; --k)
            if (any_failed) {
                held = l[k][k];
                for (int c = 0; c < here; ++c)
                    if (isnan(lanes[c]))
                        info[first + c] = k + 1;
            }
        UNROLLED(i, SIDE) UNROLLED(k, SIDE)
            if (i < side && k < side) {
                held = k <= i ? l[i][k] : (V)0;
                for (int c = 0; c < here; ++c)
                    z[(ga_ssize)(first + c) * zb + i * z0 + k * z1] = failed[c] ? (W)NAN : lanes[c];
            }
    }
}

/* Each lane has one right-hand side; there are `count` right-hand sides, m for each matrix. */
KERNEL_WORD void SOLVE_SIDE(ga_size count, ga_size m, ga_size n, ga_size unit,
    ARRAY T *t, ga_ssize tb, ga_ssize t0, ga_ssize t1, ARRAY T *z, ga_ssize zb, ga_ssize z0, ga_ssize z1)
{
    const int side = (int)n;
    for (ga_size first = get_global_id(0) * WIDTH; first < count; first += get_global_size(0) * WIDTH) {
        const int here = (int)min((ga_size)WIDTH, count - first);
        ga_ssize tp[WIDTH], zp[WIDTH];
        V held;
        W *const lanes = (W *)&held;
        for (int c = 0; c < WIDTH; ++c) {
            const ga_size i = min(first + c, count - 1);
            tp[c] = (ga_ssize)(i / m) * tb;
            zp[c] = (ga_ssize)(i / m) * zb + (ga_ssize)(i % m) * z1;
        }
        V x[SIDE];
        UNROLLED(i, SIDE)
            if (i < side) {
                for (int c = 0; c < WIDTH; ++c)
                    lanes[c] = z[zp[c] + i * z0];
                x[i] = held;
                UNROLLED(k, i) {
                    for (int c = 0; c < WIDTH; ++c)
                        lanes[c] = t[tp[c] + i * t0 + k * t1];
                    x[i] -= held * x[k];
                }
                if (!unit) {
                    for (int c = 0; c < WIDTH; ++c)
                        lanes[c] = t[tp[c] + i * (t0 + t1)];
                    x[i] /= held;
                }
            }
        UNROLLED(i, SIDE)
            if (i < side) {
                held = x[i];
                for (int c = 0; c < here; ++c)
                    z[zp[c] + i * z0] = lanes[c];
            }
    }
}
