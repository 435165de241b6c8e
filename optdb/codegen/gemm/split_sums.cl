/* The kernel for small tiles of products, of whose sums items have parts, see gpu.py. */

__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
KERNEL void MATMUL(long16 s, long16 t, W alpha, W beta, ARRAY T *a, ARRAY T *b, ARRAY T *y, ARRAY T *z, ARRAY W *w)
{
    __local W memory[MEMORY] __attribute__((aligned(16)));
    const ga_ssize m = s.s0, n = s.s1, a_row = s.s4, a_step = s.s5, b_col = s.s7, b_step = s.s8;
    const ga_ssize y0 = t.s1, y1 = t.s2, z0 = t.s4, z1 = t.s5, parts = t.s6;
    const bool a_along = s.s9, b_along = s.sA, add = s.sB;
    /* There are fewer tiles than 2**32, and shorter numbers are quicker to divide. */
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
    const int last_i = (int)min((ga_ssize)ROWS, m - i0) - 1, last_j = (int)min((ga_ssize)COLS, n - j0) - 1;
    a += batch * s.s3 + i0 * a_row + l0 * a_step;
    b += batch * s.s6 + j0 * b_col + l0 * b_step;

    /* An item loads vectors of VECTOR numbers, which lie along the sums or across them. They are read at once where their
       numbers are neighbours, no vector is cut, and all are aligned. */
#if VECTOR > 1
#define IS_WHOLE(from, along, step, row, length) \
    ((along ? step : row) == 1 && (along ? row : step) % VECTOR == 0 && (along ? k : length) % VECTOR == 0 && \
     (size_t)from % sizeof(WORDS) == 0)
#define READ_WHOLE(to, from, is_there) VSTORE(is_there ? *(__global const WORDS *)(from) : (WORDS)(0), 0, to);
#define WRITE_WHOLE(to, from) *(__local WORDS *)(to) = VLOAD(0, from);
#else
#define IS_WHOLE(from, along, step, row, length) false
#define READ_WHOLE(to, from, is_there)
#define WRITE_WHOLE(to, from) *(to) = *(from);
#endif
    const bool a_whole = IS_WHOLE(a, a_along, a_step, a_row, m), b_whole = IS_WHOLE(b, b_along, b_step, b_col, n);
    const ga_ssize a_gap = a_along ? a_step : a_row, b_gap = b_along ? b_step : b_col;
    GLOBAL_MEM const T *a_at[A_LOADS], *b_at[B_LOADS];
    int a_over[A_LOADS], b_over[B_LOADS];
    W a_next[A_LOADS][VECTOR], b_next[B_LOADS][VECTOR];
    /* Of a vector: its first term, and its first row. Along the sums, BAND neighbours are below each other, and those
       beside them are next: few of them write to the same bank of local memory at once. */
#define TERM_OF(q, along, length) \
    (along ? (item + q * ITEMS) / BAND % (DEPTH / VECTOR) * VECTOR : (item + q * ITEMS) / (length / VECTOR))
#define ROW_OF(q, along, length) \
    (along ? (item + q * ITEMS) / (BAND * DEPTH / VECTOR) * BAND + (item + q * ITEMS) % BAND \
           : (item + q * ITEMS) % (length / VECTOR) * VECTOR)
#define BEGIN(at, over, loads, from, whole, along, last, row, step, length) \
    _Pragma("unroll") \
    for (int q = 0; q < loads; ++q) { \
        const int i = ROW_OF(q, along, length), first = min(i, whole && !along ? last + 1 - VECTOR : last); \
        over[q] = along ? VECTOR - 1 : last - first; \
        at[q] = from + (first * row + TERM_OF(q, along, length) * step); \
    }
    /* Loads a tile, of which some terms are there, and moves on. */
#define LOAD_TILE(next, at, over, loads, whole, along, gap, length, is_there, jump) \
    if (whole) { \
        _Pragma("unroll") \
        for (int q = 0; q < loads; ++q) { \
            READ_WHOLE(next[q], at[q], is_there(TERM_OF(q, along, length))) \
        } \
    } else { \
        _Pragma("unroll") \
        for (int q = 0; q < loads; ++q) \
            _Pragma("unroll") \
            for (int e = 0; e < VECTOR; ++e) \
                next[q][e] = is_there(TERM_OF(q, along, length) + (along ? e : 0)) ? LOAD(at[q][min(e, over[q]) * gap]) : 0; \
    } \
    _Pragma("unroll") \
    for (int q = 0; q < loads; ++q) \
        at[q] += jump;
#define LOAD_TILES(is_there, terms) \
    LOAD_TILE(a_next, a_at, a_over, A_LOADS, a_whole, a_along, a_gap, ROWS, is_there, terms * a_step) \
    LOAD_TILE(b_next, b_at, b_over, B_LOADS, b_whole, b_along, b_gap, COLS, is_there, terms * b_step)
#define IS_FIRST(term) ((term) < there)
#define IS_THERE(term) true
#define KEEP_TILE(tile, next, loads, along, length) \
    if (along) { \
        _Pragma("unroll") \
        for (int q = 0; q < loads; ++q) \
            _Pragma("unroll") \
            for (int e = 0; e < VECTOR; ++e) \
                (tile)[(TERM_OF(q, true, length) + e) * (length + PADDING) + ROW_OF(q, true, length)] = next[q][e]; \
    } else { \
        _Pragma("unroll") \
        for (int q = 0; q < loads; ++q) { \
            WRITE_WHOLE((tile) + TERM_OF(q, false, length) * (length + PADDING) + ROW_OF(q, false, length), next[q]) \
        } \
    }
#define KEEP_TILES(side) \
    KEEP_TILE(memory + (side) * TILES, a_next, A_LOADS, a_along, ROWS) \
    KEEP_TILE(memory + (side) * TILES + DEPTH * (ROWS + PADDING), b_next, B_LOADS, b_along, COLS)
#define READ_TERM(into, l) \
    _Pragma("unroll") \
    for (int r = 0; r < ITEM_ROWS; r += A_READ) \
        READ_A; \
    _Pragma("unroll") \
    for (int c = 0; c < ITEM_COLS; c += B_READ) \
        READ_B;
#define ADD_TERM(from) \
    _Pragma("unroll") \
    for (int r = 0; r < ITEM_ROWS; ++r) \
        _Pragma("unroll") \
        for (int c = 0; c < ITEM_COLS; ++c) \
            acc[r][c] += x[from][r] * v[from][c];

    W acc[ITEM_ROWS][ITEM_COLS], x[2][ITEM_ROWS], v[2][ITEM_COLS];
    #pragma unroll
    for (int r = 0; r < ITEM_ROWS; ++r)
        #pragma unroll
        for (int c = 0; c < ITEM_COLS; ++c)
            acc[r][c] = 0;
    BEGIN(a_at, a_over, A_LOADS, a, a_whole, a_along, last_i, a_row, a_step, ROWS)
    BEGIN(b_at, b_over, B_LOADS, b, b_whole, b_along, last_j, b_col, b_step, COLS)
    /* The first tile has the terms that are left over, so that those of the loop are whole. */
    int more = k > 0 ? (k - 1) / DEPTH : 0, side = 0;
    const int there = k - (ga_ssize)more * DEPTH;
    LOAD_TILES(IS_FIRST, there)
    KEEP_TILES(0)
    local_barrier();
    for (; more >= 0; --more) {
        if (more) {
            LOAD_TILES(IS_THERE, DEPTH)
        }
        /* An item reads the next of its terms while it multiplies with the one before. */
        __local const W *left = memory + side * TILES + split * (DEPTH / SPLITS) * (ROWS + PADDING);
        __local const W *right = memory + side * TILES + DEPTH * (ROWS + PADDING) + split * (DEPTH / SPLITS) * (COLS + PADDING);
        READ_TERM(0, 0)
        #pragma unroll
        for (int l = 0; l < DEPTH / SPLITS; ++l) {
            if (l + 1 < DEPTH / SPLITS) {
                READ_TERM((l + 1) % 2, l + 1)
            }
            ADD_TERM(l % 2)
        }
        side = !side;
        if (more) {
            KEEP_TILES(side)
        }
        local_barrier();
    }
    y += batch * t.s0;
    z += batch * t.s3;
    w += (part * t.s8 + batch) * m * n;
#define ROW_AT(r) ((r) / A_READ * (ROWS / ITEM_ROWS * A_READ) + ty * A_READ + (r) % A_READ)
#define COL_AT(c) ((c) / B_READ * (COLS / ITEM_COLS * B_READ) + tx * B_READ + (c) % B_READ)
    /* Several items have parts of a sum. They leave them where the tiles were, and all items add some up. */
    #pragma unroll
    for (int r = 0; r < ITEM_ROWS; ++r)
        #pragma unroll
        for (int c = 0; c < ITEM_COLS; ++c)
            memory[(split * ROWS + ROW_AT(r)) * COLS + COL_AT(c)] = acc[r][c];
    /* What is added comes while the items wait. */
    W before[SUMS];
    #pragma unroll
    for (int q = 0; q < SUMS; ++q) {
        const int e = item + q * ITEMS;
        const ga_ssize i = i0 + e / COLS, j = j0 + e % COLS;
        before[q] = add && parts == 1 && i < m && j < n ? beta * LOAD(y[i * y0 + j * y1]) : 0;
    }
    local_barrier();
    #pragma unroll
    for (int q = 0; q < SUMS; ++q) {
        const int e = item + q * ITEMS;
        W all = memory[e];
        #pragma unroll
        for (int other = 1; other < SPLITS; ++other)
            all += memory[other * (ROWS * COLS) + e];
        const ga_ssize i = i0 + e / COLS, j = j0 + e % COLS;
        if (i >= m || j >= n) {
        } else if (parts > 1) {
            w[i * n + j] = all;
        } else {
            W sum = alpha * all;
            if (add)
                sum += before[q];
            z[i * z0 + j * z1] = STORE(sum);
        }
    }
#undef IS_WHOLE
#undef READ_WHOLE
#undef WRITE_WHOLE
#undef TERM_OF
#undef ROW_OF
#undef BEGIN
#undef LOAD_TILE
#undef LOAD_TILES
#undef IS_FIRST
#undef IS_THERE
#undef KEEP_TILE
#undef KEEP_TILES
#undef READ_TERM
#undef ADD_TERM
#undef ROW_AT
#undef COL_AT
}

/* Adds up the parts of sums that some groups had, WIDE neighbours at a time. */
KERNEL void matmul_total_wide(long16 s, long16 t, W alpha, W beta, ARRAY T *y, ARRAY T *z, ARRAY W *w)
{
    const ga_ssize m = s.s0, n = s.s1, parts = s.s2, size = s.s3, row = get_global_id(1);
    if (row * n >= size)
        return;
    /* To divide takes as long as the rest. */
    const ga_ssize batch = size == m * n ? 0 : row / m, i = row - batch * m, y_step = t.s3, z_step = t.s7;
    const bool add = s.s4;
    y += t.s0 + batch * t.s1 + i * t.s2;
    z += t.s4 + batch * t.s5 + i * t.s6;
    w += s.s5 + row * n;
    const bool is_whole = n % WIDE == 0 && size % WIDE == 0 && (size_t)w % sizeof(WORDS) == 0;
    for (ga_ssize j = get_global_id(0) * WIDE; j < n; j += get_global_size(0) * WIDE) {
        W sum[WIDE];
        #pragma unroll
        for (int e = 0; e < WIDE; ++e)
            sum[e] = 0;
        if (is_whole) {
            #pragma unroll 4
            for (ga_ssize p = 0; p < parts; ++p) {
                W few[WIDE];
                VSTORE(*(GLOBAL_MEM const WORDS *)(w + p * size + j), 0, few);
                #pragma unroll
                for (int e = 0; e < WIDE; ++e)
                    sum[e] += few[e];
            }
        } else {
            for (ga_ssize p = 0; p < parts; ++p)
                #pragma unroll
                for (int e = 0; e < WIDE; ++e)
                    sum[e] += j + e < n ? w[p * size + j + e] : 0;
        }
        #pragma unroll
        for (int e = 0; e < WIDE; ++e) {
            sum[e] *= alpha;
            if (add && j + e < n)
                sum[e] += beta * LOAD(y[(j + e) * y_step]);
        }
#if STORES_WHOLE
        if (is_whole && z_step == 1 && (size_t)(z + j) % sizeof(WORDS) == 0) {
            *(GLOBAL_MEM WORDS *)(z + j) = VLOAD(0, sum);
            continue;
        }
#endif
        #pragma unroll
        for (int e = 0; e < WIDE; ++e)
            if (j + e < n)
                z[(j + e) * z_step] = STORE(sum[e]);
    }
}
