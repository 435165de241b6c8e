/* Kernels for blocks of matrices on a CPU: an item processes a whole block, in vectors V of WIDTH numbers. */

/* The lower factors of `count` matrices of n <= LEAF rows. For a `whole` matrix, the other triangle is filled with
zeros, and a matrix that is not positive definite is filled with NaN. For a block of a larger matrix, which begins at
row `begin`, only the lower triangle is stored. */
OUTLINED_KERNEL void cholesky_leaf(ga_size count, ga_size n, ga_size begin, ga_size whole,
    ARRAY T *x, ga_ssize xb, ga_ssize x0, ga_ssize x1, ARRAY T *z, ga_ssize zb, ga_ssize z0, ga_ssize z1,
    ARRAY ga_int *info)
{
    /* Row k is column k of the factor. */
    W u[LEAF * STEP];
    const int side = (int)n, padded = (side + ROWS - 1) / ROWS * ROWS;
    for (ga_size task = get_global_id(0); task < count; task += get_global_size(0)) {
        const GLOBAL_MEM T *from = x + (ga_ssize)task * xb;
        GLOBAL_MEM T *to = z + (ga_ssize)task * zb;
        for (int k = 0; k < padded; ++k)
            for (int i = k / ROWS * ROWS; i < padded + COLS; ++i)
                u[k * STEP + i] = k == i && k >= side;
        if (x0 == 1)
            for (int k = 0; k < side; ++k)
                for (int i = k; i < side; ++i)
                    u[k * STEP + i] = from[i + k * x1];
        else
            for (int i = 0; i < side; ++i)
                for (int k = 0; k <= i; ++k)
                    u[k * STEP + i] = from[i * x0 + k * x1];
        int failed = 0;
        for (int k0 = 0; k0 < padded; k0 += ROWS) {
            W head[ROWS][COLS], inverse[ROWS];
            for (int j0 = k0; j0 < padded; j0 += COLS) {
                V acc[ROWS][VECTORS];
                UNROLLED(r, ROWS) UNROLLED(c, VECTORS)
                    acc[r][c] = VLOAD(c, u + (k0 + r) * STEP + j0);
                for (int l = 0; l < k0; ++l) {
                    V right[VECTORS];
                    UNROLLED(c, VECTORS)
                        right[c] = VLOAD(c, u + l * STEP + j0);
                    UNROLLED(r, ROWS) {
                        const W left = u[l * STEP + k0 + r];
                        UNROLLED(c, VECTORS)
                            acc[r][c] -= left * right[c];
                    }
                }
                if (j0 == k0) {
                    UNROLLED(r, ROWS) UNROLLED(c, VECTORS)
                        VSTORE(acc[r][c], c, head[r]);
                    UNROLLED(r, ROWS) {
                        W pivot = head[r][r];
                        if (!(pivot > 0 && pivot < (W)INFINITY)) {
                            pivot = NAN;
                            failed = failed ? failed : k0 + r + 1;
                        }
                        inverse[r] = 1 / sqrt(pivot);
                        UNROLLED_RANGE(c, r + 1, ROWS, 1)
                            head[r][c] *= inverse[r];
                        UNROLLED_RANGE(s, r + 1, ROWS, 1) UNROLLED_RANGE(c, s, ROWS, 1)
                            head[s][c] -= head[r][s] * head[r][c];
                    }
                }
                UNROLLED(r, ROWS) {
                    UNROLLED(s, r) UNROLLED(c, VECTORS)
                        acc[r][c] -= head[s][r] * acc[s][c];
                    UNROLLED(c, VECTORS) {
                        acc[r][c] *= inverse[r];
                        VSTORE(acc[r][c], c, u + (k0 + r) * STEP + j0);
                    }
                }
            }
        }
        if (whole)
            info[task] = failed;
        else if (failed && !info[task])
            info[task] = (int)begin + failed;
        if (whole && failed)
            for (int i = 0; i < side; ++i)
                for (int k = 0; k < side; ++k)
                    to[i * z0 + k * z1] = NAN;
        else if (z0 == 1)
            for (int k = 0; k < side; ++k) {
                for (int i = 0; whole && i < k; ++i)
                    to[i + k * z1] = 0;
                for (int i = k; i < side; ++i)
                    to[i + k * z1] = u[k * STEP + i];
            }
        else
            for (int i = 0; i < side; ++i) {
                for (int k = 0; k <= i; ++k)
                    to[i * z0 + k * z1] = u[k * STEP + i];
                for (int k = i + 1; whole && k < side; ++k)
                    to[i * z0 + k * z1] = 0;
            }
    }
}

/* Solve for `count` tiles of COLS right-hand sides; each lower triangle has n <= LEAF rows, and belongs to `tiles`
tiles. */
OUTLINED_KERNEL void solve_leaf(ga_size count, ga_size tiles, ga_size m, ga_size n, ga_size unit,
    ARRAY T *t, ga_ssize tb, ga_ssize t0, ga_ssize t1, ARRAY T *z, ga_ssize zb, ga_ssize z0, ga_ssize z1)
{
    W x[LEAF * COLS];
    const int side = (int)n;
    for (ga_size task = get_global_id(0); task < count; task += get_global_size(0)) {
        const ga_ssize batch = task / tiles, j0 = task % tiles * COLS;
        const int here = (int)min((ga_ssize)COLS, (ga_ssize)m - j0);
        const GLOBAL_MEM T *triangle = t + batch * tb;
        GLOBAL_MEM T *to = z + batch * zb + j0 * z1;
        const bool in_vectors = here == COLS && z1 == 1;
        if (in_vectors)
            for (int i = 0; i < side; ++i)
                for (int c = 0; c < COLS; ++c)
                    x[i * COLS + c] = to[i * z0 + c];
        else {
            for (int i = 0; i < side * COLS; ++i)
                x[i] = 0;
            for (int c = 0; c < here; ++c)
                for (int i = 0; i < side; ++i)
                    x[i * COLS + c] = to[i * z0 + c * z1];
        }
        int i0 = 0;
        for (; i0 + ROWS <= side; i0 += ROWS) {BLOCK}
        for (; i0 < side; ++i0) {ROW}
        if (in_vectors)
            for (int i = 0; i < side; ++i)
                for (int c = 0; c < COLS; ++c)
                    to[i * z0 + c] = x[i * COLS + c];
        else
            for (int c = 0; c < here; ++c)
                for (int i = 0; i < side; ++i)
                    to[i * z0 + c * z1] = x[i * COLS + c];
    }
}

/* The part of solve_leaf for HEIGHT rows from row i0 on. */
static void rows_of_leaf()
{
            const GLOBAL_MEM T *row[HEIGHT];
            V acc[HEIGHT][VECTORS];
            UNROLLED(r, HEIGHT) {
                row[r] = triangle + (i0 + r) * t0;
                UNROLLED(c, VECTORS)
                    acc[r][c] = VLOAD(c, x + (i0 + r) * COLS);
            }
            for (int l = 0; l < i0; ++l) {
                V right[VECTORS];
                UNROLLED(c, VECTORS)
                    right[c] = VLOAD(c, x + l * COLS);
                UNROLLED(r, HEIGHT) {
                    const W left = row[r][l * t1];
                    UNROLLED(c, VECTORS)
                        acc[r][c] -= left * right[c];
                }
            }
            UNROLLED(r, HEIGHT) {
                UNROLLED(s, r) {
                    const W left = row[r][(i0 + s) * t1];
                    UNROLLED(c, VECTORS)
                        acc[r][c] -= left * acc[s][c];
                }
                const W pivot = unit ? 1 : row[r][(i0 + r) * t1];
                UNROLLED(c, VECTORS) {
                    acc[r][c] /= pivot;
                    VSTORE(acc[r][c], c, x + (i0 + r) * COLS);
                }
            }
}

/* Solve in place for `count` vectors, each with its own triangle: by dot products with ROWS rows at a time or, if
columns are contiguous, by subtracting ROWS columns at a time. */
OUTLINED_KERNEL void solve_vector(ga_size count, ga_size n, ga_size upper, ga_size unit,
    ARRAY T *t, ga_ssize tb, ga_ssize t0, ga_ssize t1, ARRAY T *z, ga_ssize zb)
{
    const bool by_columns = t0 == 1;
    for (ga_size task = get_global_id(0); task < count; task += get_global_size(0)) {
        const GLOBAL_MEM T *triangle = t + (ga_ssize)task * tb;
        GLOBAL_MEM T *x = z + (ga_ssize)task * zb;
        for (ga_ssize done = 0; done < n; done += ROWS) {
            const int rows = (int)min((ga_ssize)ROWS, (ga_ssize)n - done);
            const ga_ssize k0 = upper ? n - done - rows : done;
            /* The ranges of the solved elements, and of the remaining ones. */
            const ga_ssize known = upper ? k0 + rows : 0, known_end = upper ? n : k0;
            const ga_ssize left = upper ? 0 : k0 + rows, left_end = upper ? k0 : n;
            const GLOBAL_MEM T *line[ROWS];
            W v[ROWS];
            for (int r = 0; r < ROWS; ++r) {
                const ga_ssize k = k0 + min(r, rows - 1);
                line[r] = triangle + k * (by_columns ? t1 : t0);
                v[r] = x[k];
            }
            if (!by_columns) {
                ga_ssize i = known;
                if (t1 == 1 && known_end - known >= WIDTH) {
                    V sums[ROWS];
                    UNROLLED(r, ROWS)
                        sums[r] = 0;
                    for (; i + WIDTH <= known_end; i += WIDTH) {
                        const V right = VLOAD(0, x + i);
                        UNROLLED(r, ROWS)
                            sums[r] += VLOAD(0, line[r] + i) * right;
                    }
                    UNROLLED(r, ROWS) {
                        W lanes[WIDTH], sum = 0;
                        VSTORE(sums[r], 0, lanes);
                        for (int c = 0; c < WIDTH; ++c)
                            sum += lanes[c];
                        v[r] -= sum;
                    }
                }
                for (; i < known_end; ++i)
                    UNROLLED(r, ROWS)
                        v[r] -= line[r][i * t1] * x[i];
            }
            for (int q = 0; q < rows; ++q) {
                const int r = upper ? rows - 1 - q : q;
                const GLOBAL_MEM T *row = triangle + (k0 + r) * t0 + k0 * t1;
                for (int p = 0; p < q; ++p) {
                    const int s = upper ? rows - 1 - p : p;
                    v[r] -= row[s * t1] * v[s];
                }
                if (!unit)
                    v[r] /= row[r * t1];
                x[k0 + r] = v[r];
            }
            if (by_columns) {
                for (int r = rows; r < ROWS; ++r)
                    v[r] = 0;
                ga_ssize i = left;
                for (; i + WIDTH <= left_end; i += WIDTH) {
                    V rest = VLOAD(0, x + i);
                    UNROLLED(r, ROWS)
                        rest -= VLOAD(0, line[r] + i) * v[r];
                    VSTORE(rest, 0, x + i);
                }
                for (; i < left_end; ++i)
                    UNROLLED(r, ROWS)
                        x[i] -= line[r][i] * v[r];
            }
        }
    }
}
