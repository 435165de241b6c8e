/* The kernels for matrix products on a CPU, see cpu.py. */

/* Pack panels of rows or columns term by term. */
OUTLINED_KERNEL void PACK(long16 s, ARRAY T *x, ARRAY W *w)
{
    const ga_ssize length = s.s0, k = s.s1, step = s.s5, k_step = s.s6;
    const ga_ssize at = get_global_id(0) * WIDTH;
    const int there = (int)min((ga_ssize)WIDTH, length - at);
    x += s.s3 + get_global_id(1) * s.s4 + at * step;
    w += s.s2 + get_global_id(1) * s.s7 + at * k;
    if (there == WIDTH && step == 1) {
        for (ga_ssize l = 0; l < k; ++l)
            for (int r = 0; r < WIDTH; ++r)
                w[l * WIDTH + r] = LOAD(x[l * k_step + r]);
        return;
    }
    ga_ssize l = 0;
    if (there == WIDTH)  /* a few terms at a time, which share cache lines */
        for (; l + 16 <= k; l += 16)
            for (int r = 0; r < WIDTH; ++r)
                for (int c = 0; c < 16; ++c)
                    w[(l + c) * WIDTH + r] = LOAD(x[r * step + (l + c) * k_step]);
    for (; l < k; ++l) {
        for (int r = 0; r < there; ++r)
            w[l * WIDTH + r] = LOAD(x[r * step + l * k_step]);
        for (int r = there; r < WIDTH; ++r)
            w[l * WIDTH + r] = 0;
    }
}

/* An item computes a panel of columns block by block: HIGH computes a full block, and LOW one of half the height. */
OUTLINED_KERNEL void BLOCK(long16 s, long16 t, W alpha, W beta, ARRAY W *a, ARRAY W *b, ARRAY T *y, ARRAY T *z,
    ARRAY W *w)
{
    const ga_ssize m = s.s0, n = s.s1, a_row = s.s6, a_step = s.s7, b_step = s.sB, chunk = s.sC;
    const ga_ssize y0 = t.s2, y1 = t.s3, z0 = t.s6, z1 = t.s7, parts = t.s8;
    const bool in_place = s.sD, add = s.sE, a_packed = s.sF;
    const ga_ssize panel = get_global_id(0), begin = get_global_id(1) * chunk, end = min(begin + chunk, m);
    const ga_ssize batch = get_global_id(2) / parts, part = get_global_id(2) % parts;
    const ga_ssize l0 = part * t.s9, k = min(s.s2 - l0, t.s9);
    /* The number of terms for which whole vectors can be read, if columns are fewer than a vector has lanes. */
    const ga_ssize whole = clamp(t.sB - l0, (ga_ssize)0, k);
    /* The number of columns at the start of the panel that belong to the previous panel. */
    const int known = in_place ? (int)max(min(panel * COLS, panel * COLS + COLS - n), (ga_ssize)0) : 0;
    const ga_ssize j0 = panel * COLS - known;
    const int cols = (int)min((ga_ssize)COLS, n - j0);
    a += s.s3 + batch * s.s4 + l0 * a_step;
    b += s.s8 + batch * s.s9 + panel * s.sA - known + l0 * b_step;
    y += t.s0 + batch * t.s1 + j0 * y1;
    z += t.s4 + batch * t.s5 + j0 * z1;
    w += t.sA + (part * (get_num_groups(2) / parts) + batch) * m * n + j0;
    const bool rows_of_vectors = cols == COLS && !known && z1 == 1 && (y1 == 1 || !add);
    for (ga_ssize i0 = begin; i0 < end; i0 += ROWS) {
        GLOBAL_MEM const W *block = a + i0 / ROWS * s.s5;
        const int rows = (int)min((ga_ssize)ROWS, end - i0);
        if (rows <= ROWS / 2) {LOW} else {HIGH}
    }
}

/* Statements that compute a block of HEIGHT rows. */
void rows_of_block()
{
        VECTOR acc[HEIGHT][VECTORS];
        UNROLLED(r, HEIGHT) UNROLLED(c, VECTORS)
            acc[r][c] = 0;
        SUMS
        for (ga_ssize l = whole; l < k; ++l) {
            W last[COLS];
            for (int c = 0; c < COLS; ++c)
                last[c] = c < n ? b[l * b_step + c] : 0;
            UNROLLED(r, HEIGHT) UNROLLED(c, VECTORS)
                acc[r][c] += block[min(r, rows - 1) * a_row + l * a_step] * VLOAD(c, last);
        }
        if (parts == 1 && rows_of_vectors) {
            UNROLLED(r, HEIGHT) {
                if (r < rows)
                    UNROLLED(c, VECTORS) {
                        VECTOR sum = (VECTOR)alpha * acc[r][c];
                        if (add)
                            sum += (VECTOR)beta * VLOAD_T(0, (const MEMORY *)(y + (i0 + r) * y0 + c * WIDTH));
                        VSTORE_T(sum, 0, (MEMORY *)(z + (i0 + r) * z0 + c * WIDTH));
                    }
            }
        } else {
            W sums[HEIGHT * COLS];
            UNROLLED(r, HEIGHT) UNROLLED(c, VECTORS)
                VSTORE(acc[r][c], r * VECTORS + c, sums);
            #pragma unroll 1
            for (int r = 0; r < rows; ++r) {
                #pragma unroll 1
                for (int c = known; c < cols; ++c) {
                    if (parts > 1) {
                        w[(i0 + r) * n + c] = sums[r * COLS + c];
                        continue;
                    }
                    W sum = alpha * sums[r * COLS + c];
                    if (add)
                        sum += beta * LOAD(y[(i0 + r) * y0 + c * y1]);
                    z[(i0 + r) * z0 + c * z1] = STORE(sum);
                }
            }
        }
}

/* Statements that add the terms for which whole vectors can be read. */
void sums()
{
            for (ga_ssize l = 0; l < whole; ++l) {
                VECTOR right[VECTORS];
                UNROLLED(c, VECTORS)
                    right[c] = VLOAD(c, b + l * b_step);
                UNROLLED(r, HEIGHT) {
                    const W left = LEFT;
                    UNROLLED(c, VECTORS)
                        acc[r][c] += left * right[c];
                }
            }
}

/* Statements that precede the loop if rows are read in place: out-of-range rows are clamped to the last one. */
void pointers()
{
            GLOBAL_MEM const W *row[HEIGHT];
            UNROLLED(r, HEIGHT)
                row[r] = block + min(r, rows - 1) * a_row;
}
