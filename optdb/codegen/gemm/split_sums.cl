/* The kernel for small product tiles, in which several items share each sum, see gpu.py. */

__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
KERNEL void MATMUL(long16 s, long16 t, W alpha, W beta, ARRAY T *a, ARRAY T *b, ARRAY T *y, ARRAY T *z, ARRAY W *w)
{
    __local W memory[2 * DEPTH * (ROWS + PADDING)] __attribute__((aligned(16)));
    __local W right[2][DEPTH][COLS + PADDING] __attribute__((aligned(16)));
    __local W (*left)[DEPTH][ROWS + PADDING] = (__local W (*)[DEPTH][ROWS + PADDING])memory;
    const ga_ssize m = s.s0, n = s.s1, a_row = s.s4, a_step = s.s5, b_col = s.s7, b_step = s.s8;
    const ga_ssize y0 = t.s1, y1 = t.s2, z0 = t.s4, z1 = t.s5, parts = t.s6;
    const bool a_along = s.s9, b_along = s.sA, add = s.sB;
    /* There are fewer than 2**32 tiles, and 32-bit divisions are faster. */
    const uint tiles = (uint)((n + COLS - 1) / COLS), bands = (uint)((m + ROWS - 1) / ROWS);
    uint place = (uint)get_group_id(0);
    const ga_ssize j0 = (ga_ssize)(place % tiles) * COLS;
    place /= tiles;
    const ga_ssize i0 = (ga_ssize)(place % bands) * ROWS;
    place /= bands;
    const ga_ssize batch = place / (uint)parts, part = place % (uint)parts;
    const ga_ssize l0 = part * t.s7, k = min(s.s2 - l0, t.s7);
    const int item = get_local_id(0), split = item / TEAM, within = item % TEAM;
    const int tx = within % (COLS / ITEM_COLS), ty = within / (COLS / ITEM_COLS);
    /* The part of a tile that an item loads, along or across the terms. */
    const int a_l = a_along ? item % DEPTH : item / ROWS, a_i = a_along ? item / DEPTH : item % ROWS;
    const int b_l = b_along ? item % DEPTH : item / COLS, b_j = b_along ? item / DEPTH : item % COLS;
    const int a_dl = a_along ? 0 : ITEMS / ROWS, a_di = a_along ? ITEMS / DEPTH : 0;
    const int b_dl = b_along ? 0 : ITEMS / COLS, b_dj = b_along ? ITEMS / DEPTH : 0;
    const int last_i = (int)min((ga_ssize)ROWS, m - i0) - 1, last_j = (int)min((ga_ssize)COLS, n - j0) - 1;
    a += batch * s.s3 + i0 * a_row + l0 * a_step;
    b += batch * s.s6 + j0 * b_col + l0 * b_step;
    W a_next[A_LOADS], b_next[B_LOADS], acc[ITEM_ROWS][ITEM_COLS];
    UNROLLED(r, ITEM_ROWS) UNROLLED(c, ITEM_COLS)
        acc[r][c] = 0;

#define LOAD_TILES(there) \
    UNROLLED(v, A_LOADS) { \
        const int l = a_l + v * a_dl, i = min(a_i + v * a_di, last_i); \
        a_next[v] = l < (there) ? LOAD(a[i * a_row + l * a_step]) : 0; \
    } \
    UNROLLED(v, B_LOADS) { \
        const int l = b_l + v * b_dl, j = min(b_j + v * b_dj, last_j); \
        b_next[v] = l < (there) ? LOAD(b[j * b_col + l * b_step]) : 0; \
    } \
    a += DEPTH * a_step; \
    b += DEPTH * b_step;
#define KEEP_TILES(side) \
    UNROLLED(v, A_LOADS) \
        left[side][a_l + v * a_dl][a_i + v * a_di] = a_next[v]; \
    UNROLLED(v, B_LOADS) \
        right[side][b_l + v * b_dl][b_j + v * b_dj] = b_next[v];

    LOAD_TILES(k)
    KEEP_TILES(0)
    local_barrier();
    int side = 0;
    for (ga_ssize done = 0; done < k; done += DEPTH) {
        const ga_ssize rest = k - done - DEPTH;
        if (rest >= DEPTH) {
            LOAD_TILES(DEPTH)
        } else if (rest > 0) {
            LOAD_TILES((int)rest)
        }
        UNROLLED(t, DEPTH / SPLITS) {
            const int term = split * (DEPTH / SPLITS) + t;
            W x[ITEM_ROWS], v[ITEM_COLS];
            #pragma unroll
            for (int r = 0; r < ITEM_ROWS; r += A_READ)
                READ_A;
            #pragma unroll
            for (int c = 0; c < ITEM_COLS; c += B_READ)
                READ_B;
            UNROLLED(r, ITEM_ROWS) UNROLLED(c, ITEM_COLS)
                acc[r][c] += x[r] * v[c];
        }
        if (rest > 0) {
            KEEP_TILES(!side)
            side = !side;
        }
        local_barrier();
    }
    y += batch * t.s0;
    z += batch * t.s3;
    w += (part * t.s8 + batch) * m * n;
#define ROW_OF(r) ((r) / A_READ * (ROWS / ITEM_ROWS * A_READ) + ty * A_READ + (r) % A_READ)
#define COL_OF(c) ((c) / B_READ * (COLS / ITEM_COLS * B_READ) + tx * B_READ + (c) % B_READ)
#define ADDED(i, j) (beta * LOAD(y[(i) * y0 + (j) * y1]))
#define STORE_SUM(i, j, sum_of_terms, added) \
    if ((i) >= m || (j) >= n) { \
    } else if (parts > 1) { \
        w[(i) * n + (j)] = sum_of_terms; \
    } else { \
        W sum = alpha * (sum_of_terms); \
        if (add) \
            sum += added; \
        z[(i) * z0 + (j) * z1] = STORE(sum); \
    }
    /* Items that share a sum write their partial sums over the last tiles, and each item adds up some of them. */
    __local W *sums = memory;
    UNROLLED(r, ITEM_ROWS) UNROLLED(c, ITEM_COLS)
        sums[(split * ROWS + ROW_OF(r)) * COLS + COL_OF(c)] = acc[r][c];
    /* Load the addends while the items wait. */
    W before[SUMS];
    UNROLLED(q, SUMS) {
        const int e = item + q * ITEMS;
        const ga_ssize i = i0 + e / COLS, j = j0 + e % COLS;
        before[q] = add && parts == 1 && i < m && j < n ? ADDED(i, j) : 0;
    }
    local_barrier();
    UNROLLED(q, SUMS) {
        const int e = item + q * ITEMS;
        W all = sums[e];
        #pragma unroll
        for (int other = 1; other < SPLITS; ++other)
            all += sums[other * (ROWS * COLS) + e];
        const ga_ssize i = i0 + e / COLS, j = j0 + e % COLS;
        STORE_SUM(i, j, all, before[q])
    }
}
