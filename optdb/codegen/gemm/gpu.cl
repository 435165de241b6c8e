/* Kernels for matrix products on a GPU, see gpu.py. */

__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
KERNEL void MATMUL(long16 s, long16 t, W alpha, W beta, ARRAY T *a, ARRAY T *b, ARRAY T *y, ARRAY T *z, ARRAY W *w)
{
    __local W left[2][DEPTH][ROWS + PADDING] __attribute__((aligned(16)));
    __local W right[2][DEPTH][COLS + PADDING] __attribute__((aligned(16)));
    FIND_TILE
    const bool a_along = s.s9, b_along = s.sA;
    const int item = get_local_id(0), tx = ITEM_COLUMN, ty = ITEM_ROW;
    const int last_i = rows - 1, last_j = cols - 1;

    /* VECTOR numbers are one vector load if they are contiguous, aligned, and inside the matrix. */
#if VECTOR > 1
#define IS_WHOLE(from, along, step, row, length) \
    ((along ? step : row) == 1 && (along ? row : step) % VECTOR == 0 && (along ? k : length) % VECTOR == 0 && \
     (size_t)from % sizeof(WORDS) == 0)
#define READ_WHOLE(to, from, is_there) VSTORE(is_there ? *(__global const WORDS *)(from) : (WORDS)(0), 0, to);
#define WRITE_WHOLE(to, from) *(__local WORDS *)&to = VLOAD(0, from);
#else
#define IS_WHOLE(from, along, step, row, length) false
#define READ_WHOLE(to, from, is_there)
#define WRITE_WHOLE(to, from) to = *(from);
#endif
    const bool a_whole = IS_WHOLE(a, a_along, a_step, a_row, m), b_whole = IS_WHOLE(b, b_along, b_step, b_col, n);
    const int a_l = a_along ? item % (DEPTH / VECTOR) * VECTOR : item / (ROWS / VECTOR);
    const int a_i = a_along ? item / (DEPTH / VECTOR) : item % (ROWS / VECTOR) * VECTOR;
    const int b_l = b_along ? item % (DEPTH / VECTOR) * VECTOR : item / (COLS / VECTOR);
    const int b_j = b_along ? item / (DEPTH / VECTOR) : item % (COLS / VECTOR) * VECTOR;
    const ga_ssize a_gap = a_along ? a_step : a_row, b_gap = b_along ? b_step : b_col;
    GLOBAL_MEM const T *a_at[A_LOADS], *b_at[B_LOADS];
    int a_over[A_LOADS], b_over[B_LOADS];
    W a_next[A_LOADS * VECTOR], b_next[B_LOADS * VECTOR];
    W acc[ITEM_ROWS][ITEM_COLS], x[2][ITEM_ROWS], v[2][ITEM_COLS];

#define BEGIN(at, over, loads, from, whole, along, l0, i0, last, row, step, per, far) \
    UNROLLED(q, loads) { \
        const int l = along ? l0 : l0 + q / per * (ITEMS * VECTOR / far + (ITEMS * VECTOR < far)); \
        const int i = along ? i0 + q * (ITEMS * VECTOR / DEPTH) : i0 + q % per * (ITEMS * VECTOR); \
        const int first = min(i, whole && !along ? last + 1 - VECTOR : last); \
        over[q] = along ? VECTOR - 1 : last - first; \
        at[q] = from + (first * row + l * step); \
    }
    /* Load a tile, which may be partial, and advance. */
#define LOAD_TILE(next, at, over, loads, whole, gap, is_there, jump) \
    if (whole) { \
        UNROLLED(q, loads) { \
            READ_WHOLE(next + q * VECTOR, at[q], is_there(q, 0)) \
        } \
    } else { \
        UNROLLED(q, loads) UNROLLED(e, VECTOR) \
            next[q * VECTOR + e] = is_there(q, e) ? LOAD(at[q][min(e, over[q]) * gap]) : 0; \
    } \
    UNROLLED(q, loads) \
        at[q] += jump;
#define IN_A(q, e) ((a_along ? a_l + e : a_l + q / A_TURNS * (ITEMS * VECTOR / ROWS + (ITEMS * VECTOR < ROWS))) < there)
#define IN_B(q, e) ((b_along ? b_l + e : b_l + q / B_TURNS * (ITEMS * VECTOR / COLS + (ITEMS * VECTOR < COLS))) < there)
#define IS_THERE(q, e) true
#define KEEP_TILE(tile, next, loads, along, l0, i0, per, far) \
    if (along) { \
        UNROLLED(q, loads) UNROLLED(e, VECTOR) \
            tile[l0 + e][i0 + q * (ITEMS * VECTOR / DEPTH)] = next[q * VECTOR + e]; \
    } else { \
        UNROLLED(q, loads) { \
            const int l = l0 + q / per * (ITEMS * VECTOR / far + (ITEMS * VECTOR < far)); \
            WRITE_WHOLE(tile[l][i0 + q % per * (ITEMS * VECTOR)], next + q * VECTOR) \
        } \
    }
#define KEEP_TILES(side) \
    KEEP_TILE(left[side], a_next, A_LOADS, a_along, a_l, a_i, A_TURNS, ROWS) \
    KEEP_TILE(right[side], b_next, B_LOADS, b_along, b_l, b_j, B_TURNS, COLS)
#define READ_TERM(into, term) \
    UNROLLED_RANGE(r, 0, ITEM_ROWS, A_READ) \
        READ_A; \
    UNROLLED_RANGE(c, 0, ITEM_COLS, B_READ) \
        READ_B;
#define ADD_TERM(from) \
    UNROLLED(r, ITEM_ROWS) UNROLLED(c, ITEM_COLS) \
        acc[r][c] += x[from][r] * v[from][c];

    BEGIN(a_at, a_over, A_LOADS, a, a_whole, a_along, a_l, a_i, last_i, a_row, a_step, A_TURNS, ROWS)
    BEGIN(b_at, b_over, B_LOADS, b, b_whole, b_along, b_l, b_j, last_j, b_col, b_step, B_TURNS, COLS)
    UNROLLED(r, ITEM_ROWS) UNROLLED(c, ITEM_COLS)
        acc[r][c] = 0;
    /* The first tile is the partial one, so that the loop has only whole tiles. */
    int more = k > 0 ? (k - 1) / DEPTH : 0, side = 0;
    const int there = k - (ga_ssize)more * DEPTH;
    LOAD_TILE(a_next, a_at, a_over, A_LOADS, a_whole, a_gap, IN_A, there * a_step)
    LOAD_TILE(b_next, b_at, b_over, B_LOADS, b_whole, b_gap, IN_B, there * b_step)
    KEEP_TILES(0)
    local_barrier();
    READ_TERM(0, 0)
    for (; more >= 0; --more) {
        if (more) {
            LOAD_TILE(a_next, a_at, a_over, A_LOADS, a_whole, a_gap, IS_THERE, DEPTH * a_step)
            LOAD_TILE(b_next, b_at, b_over, B_LOADS, b_whole, b_gap, IS_THERE, DEPTH * b_step)
        }
        /* An item reads the next term, which may be in the next tile, while it multiplies the current one. */
        UNROLLED(l, DEPTH - 1) {
            READ_TERM((l + 1) % 2, l + 1)
            ADD_TERM(l % 2)
        }
        side = !side;
        if (more) {
            KEEP_TILES(side)
        }
        local_barrier();
        READ_TERM(DEPTH % 2, 0)
        ADD_TERM((DEPTH - 1) % 2)
    }
    y += batch * t.s0;
    z += batch * t.s3;
    w += (part * t.s8 + batch) * m * n;
    const ga_ssize z0 = t.s4, z1 = t.s5;
#if STORES_WHOLE
    const bool to_w = parts > 1;
    GLOBAL_MEM W *const to = to_w ? w : z;
    const ga_ssize to0 = to_w ? n : z0, to1 = to_w ? 1 : z1;
    const bool z_whole = to1 == 1 && to0 % B_READ == 0 && n % B_READ == 0 && (size_t)to % sizeof(STORED) == 0;
#endif
    UNROLLED(r, ITEM_ROWS) {
        const ga_ssize i = i0 + r / A_READ * (ROWS / ITEM_ROWS * A_READ) + ty * A_READ + r % A_READ;
        if (i >= m)
            continue;
#if STORES_WHOLE
        UNROLLED_RANGE(c, 0, ITEM_COLS, B_READ) {
            const ga_ssize j = j0 + c / B_READ * (COLS / ITEM_COLS * B_READ) + tx * B_READ;
            W sum[B_READ];
            UNROLLED(e, B_READ) {
                sum[e] = to_w ? acc[r][c + e] : alpha * acc[r][c + e];
                if (add && !to_w && j + e < n)
                    sum[e] += beta * y[i * y0 + (j + e) * y1];
            }
            if (z_whole) {
                if (j < n)
                    *(GLOBAL_MEM STORED *)(to + i * to0 + j) = STORED_VLOAD(0, sum);
            } else {
                UNROLLED(e, B_READ)
                    if (j + e < n)
                        to[i * to0 + (j + e) * to1] = sum[e];
            }
        }
#else
        UNROLLED(c, ITEM_COLS) {
            const ga_ssize j = j0 + c / B_READ * (COLS / ITEM_COLS * B_READ) + tx * B_READ + c % B_READ;
            if (j >= n) {
            } else if (parts > 1) {
                w[i * n + j] = acc[r][c];
            } else {
                W sum = alpha * acc[r][c];
                if (add)
                    sum += beta * LOAD(y[i * y0 + j * y1]);
                z[i * z0 + j * z1] = STORE(sum);
            }
        }
#endif
    }
}
