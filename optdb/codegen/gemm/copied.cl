/* The kernel for float32 products whose tiles are copied asynchronously, see copied.py. */

__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
KERNEL void MATMUL(long16 s, long16 t, W alpha, W beta, ARRAY T *a, ARRAY T *b, ARRAY T *y, ARRAY T *z, ARRAY W *w)
{
    /* Neighbouring items read lines of terms that are four lines apart; a gap puts such lines into different banks. */
#define PLACE(along, pitch, line, at) ((along ? (line) * DEPTH + (line) / 4 * 4 : (line) * (pitch)) + (at))
#define A_PLACE(line, at) PLACE(A_ALONG, ROWS + 4 * A_NUMBERS, line, at)
#define B_PLACE(line, at) PLACE(B_ALONG, COLS + 4 * B_NUMBERS, line, at)
#define A_LENGTH (A_ALONG ? DEPTH : ROWS)
#define B_LENGTH (B_ALONG ? DEPTH : COLS)
#define GAP(along) (ITEMS * 4 + (along ? ITEMS * 4 / DEPTH : 0))
    __local uint its_tiles[STAGES * STAGE_WORDS] __attribute__((aligned(128)));
    const MEMORY memory = (MEMORY)ADDRESS_OF(its_tiles);
    FIND_TILE
    const uint item = get_local_id(0), tx = ITEM_COLUMN, ty = ITEM_ROW;
    /* All 16-byte pieces were aligned when this kernel was chosen, but arrays bound later may not be: that is slow. */
#define IS_ALIGNED(x, near, far) (near == 1 && far % 4 == 0 && (ulong)x % 16 == 0)
#define CAN_COPY(x, numbers, along, across, step) \
    (numbers ? step == 1 : along ? IS_ALIGNED(x, step, across) : IS_ALIGNED(x, across, step))
    const bool are_aligned = CAN_COPY(a, A_NUMBERS, A_ALONG, a_row, a_step) && CAN_COPY(b, B_NUMBERS, B_ALONG, b_col, b_step);
    if (!are_aligned) {
        GLOBAL_MEM W *const to = parts > 1 ? w + (part * t.s8 + batch) * m * n : z + batch * t.s3;
        BY_NUMBERS(a, b, y + batch * t.s0, to, s, t, k, i0, j0, alpha, beta);
        return;
    }
    W acc[ITEM_ROWS][ITEM_COLS];
    UNROLLED(r, ITEM_ROWS) UNROLLED(c, ITEM_COLS)
        acc[r][c] = 0;

    /* Source and destination of an item's first copy; opaque values stay in registers. */
#define FIRST(from, numbers, along, length, across, step) \
    (from + (numbers ? item / 8 * across + item % 8 \
             : along ? item / (DEPTH / 4) * across + item % (DEPTH / 4) * 4 \
                     : item / (length / 4) * step + item % (length / 4) * 4))
    GLOBAL_MEM const T *x = FIRST(a, A_NUMBERS, A_ALONG, ROWS, a_row, a_step);
    GLOBAL_MEM const T *v = FIRST(b, B_NUMBERS, B_ALONG, COLS, b_col, b_step);
#define FIRST_TO(numbers, place, length) \
    (numbers ? place(item % 8, item / 8) : place(item * 4 / length, item * 4 % length))
    const uint x_to = opaque(FIRST_TO(A_NUMBERS, A_PLACE, A_LENGTH));
    const uint v_to = opaque(A_WORDS + FIRST_TO(B_NUMBERS, B_PLACE, B_LENGTH));
    const int stages = (int)((k + DEPTH - 1) / DEPTH);
    /* The number of stages whose tiles are entirely inside the matrices. */
    const int whole = rows == ROWS && cols == COLS ? (int)(k / DEPTH) : 0;

    /* Start to copy a tile, piece by piece. Missing numbers become zeros: an empty piece reads nothing. */
#define COPY_PIECES(to, from, along, length, gap, across, step, is_whole, there, terms) \
    UNROLLED(q, length * DEPTH / 4 / ITEMS) { \
        const int i = along ? item / (DEPTH / 4) + q * (ITEMS * 4 / DEPTH) : item % (length / 4) * 4; \
        const int l = along ? item % (DEPTH / 4) * 4 : item / (length / 4) + q * (ITEMS * 4 / length); \
        const int bytes = (along ? i < there : l < terms) ? clamp(4 * (along ? terms - l : there - i), 0, 16) : 0; \
        GLOBAL_MEM const T *source = from + (along ? q * (ITEMS * 4 / DEPTH) * across : q * (ITEMS * 4 / length) * step); \
        if (is_whole) \
            copy_async_all(memory, to + q * gap, source); \
        else \
            copy_async16(memory, to + q * gap, source, bytes); \
    }
    /* Copy a tile number by number. 32 neighbouring items copy eight terms of four rows or columns, into different
       banks. */
#define COPY_NUMBERS(to, from, place, length, across, is_whole, there, terms) \
    UNROLLED(q, length * DEPTH / ITEMS) { \
        const int i = q % (length * 8 / ITEMS) * (ITEMS / 8), l = q / (length * 8 / ITEMS) * 8; \
        const bool exists = (int)(item / 8) + i < there && (int)(item % 8) + l < terms; \
        GLOBAL_MEM const T *source = from + i * across + l; \
        if (is_whole) \
            copy_number_all(memory, to + place(l, i), source); \
        else \
            copy_number_float32(memory, to + place(l, i), source, exists); \
    }
#define COPY_TILE(to, from, numbers, along, place, length, across, step, is_whole, there, terms) \
    if (numbers) { \
        COPY_NUMBERS(to, from, place, length, across, is_whole, there, terms) \
    } else { \
        COPY_PIECES(to, from, along, length, GAP(along), across, step, is_whole, there, terms) \
    }
#define COPY_TILES(base, is_whole, terms) \
    COPY_TILE(base + x_to, x, A_NUMBERS, A_ALONG, A_PLACE, ROWS, a_row, a_step, is_whole, rows, terms) \
    COPY_TILE(base + v_to, v, B_NUMBERS, B_ALONG, B_PLACE, COLS, b_col, b_step, is_whole, cols, terms)
#define COPY(stage, side) { \
        const uint base = (side) * STAGE_WORDS; \
        const int terms = (int)min(k - (ga_ssize)(stage) * DEPTH, (ga_ssize)DEPTH); \
        if ((stage) < whole) { \
            COPY_TILES(base, true, terms) \
        } else { \
            COPY_TILES(base, false, terms) \
        } \
        x += DEPTH * (A_NUMBERS ? 1 : a_step); \
        v += DEPTH * (B_NUMBERS ? 1 : b_step); \
    }

    /* The positions of an item's rows and columns. A vector holds four terms of one row, or one term of four rows. */
    const uint left_at = opaque(A_ALONG ? A_PLACE(ty * 4, 0) : ty * 4);
    const uint right_at = opaque(A_WORDS + (B_ALONG ? B_PLACE(tx * 4, 0) : tx * 4));
#define FOUR(at) as_float4(*(__local const uint4 *)(at))
#define LEFT(base, r, l) FOUR(its_tiles + (base) + left_at + (A_PLACE((r) / 4 * (ROWS / ITEM_ROWS * 4) + (r) % 4, l)))
#define RIGHT(base, c, l) FOUR(its_tiles + (base) + right_at + (B_PLACE((c) / 4 * (COLS / ITEM_COLS * 4) + (c) % 4, l)))
#define LEFT_ACROSS(base, r, l) FOUR(its_tiles + (base) + left_at + A_PLACE(l, (r) / 4 * (ROWS / ITEM_ROWS * 4)))
#define RIGHT_ACROSS(base, c, l) FOUR(its_tiles + (base) + right_at + B_PLACE(l, (c) / 4 * (COLS / ITEM_COLS * 4)))
    UNROLLED(stage, STAGES - 1) {
        if (stage < stages)
            COPY(stage, stage)
        commit_copies();
    }
    int side = 0, next = STAGES - 1;
    await_copies();
#if A_ALONG
    /* An item reads one row and four terms of columns ahead, maybe in the next stage, so a stage is overwritten only
       after all items have synchronized. */
    uint base = 0, after = 0;
    W x1[2][4], v4[2][ITEM_COLS][4];
#define READ_COLUMNS(into, i, base, l) { \
        const int term = (i) / (ITEM_COLS / 4), c = (i) % (ITEM_COLS / 4) * 4; \
        const float4 four = B_ALONG ? RIGHT(base, i, l) : RIGHT_ACROSS(base, c, (l) + term); \
        if (B_ALONG) { \
            vstore4(four, 0, v4[into][i]); \
        } else { \
            v4[into][c][term] = four.x; \
            v4[into][c + 1][term] = four.y; \
            v4[into][c + 2][term] = four.z; \
            v4[into][c + 3][term] = four.w; \
        } \
    }
    UNROLLED(i, ITEM_COLS)
        READ_COLUMNS(0, i, 0, 0)
    vstore4(LEFT(0, 0, 0), 0, x1[0]);
    for (int stage = 0; stage < stages; ++stage) {
        UNROLLED_RANGE(l, 0, DEPTH, 4) {
            if (l == DEPTH - 4) {
                await_copies();
                if (stage + STAGES - 1 < stages)
                    COPY(stage + STAGES - 1, next)
                commit_copies();
                next = next == STAGES - 1 ? 0 : next + 1;
                side = side == STAGES - 1 ? 0 : side + 1;
                after = side * STAGE_WORDS;
            }
            UNROLLED(r, ITEM_ROWS) {
                if (r < ITEM_ROWS - 1)
                    vstore4(LEFT(base, r + 1, l), 0, x1[(r + 1) % 2]);
                else
                    vstore4(LEFT(after, 0, (l + 4) % DEPTH), 0, x1[0]);
                UNROLLED_RANGE(i, r * ITEM_COLS / ITEM_ROWS, (r + 1) * ITEM_COLS / ITEM_ROWS, 1)
                    READ_COLUMNS((l / 4 + 1) % 2, i, after, (l + 4) % DEPTH)
                UNROLLED(e, 4) UNROLLED(c, ITEM_COLS)
                    acc[r][c] += x1[r % 2][e] * v4[l / 4 % 2][c][e];
            }
            base = after;
        }
    }
#else
    /* Both tiles are contiguous across the terms. An item reads one term ahead. */
    uint base = 0;
    float4 xs[2][ITEM_ROWS / 4], vs[2][ITEM_COLS / 4];
#define READ_TERM(into, l) \
    UNROLLED_RANGE(r, 0, ITEM_ROWS, 4) \
        xs[into][r / 4] = LEFT_ACROSS(base, r, l); \
    UNROLLED_RANGE(c, 0, ITEM_COLS, 4) \
        vs[into][c / 4] = RIGHT_ACROSS(base, c, l);
    READ_TERM(0, 0)
    for (int stage = 0; stage < stages; ++stage) {
        if (stage + STAGES - 1 < stages)
            COPY(stage + STAGES - 1, next)
        commit_copies();
        next = next == STAGES - 1 ? 0 : next + 1;
        UNROLLED(l, DEPTH) {
            if (l == DEPTH - 1) {
                await_copies();
                side = side == STAGES - 1 ? 0 : side + 1;
                base = side * STAGE_WORDS;
            }
            READ_TERM((l + 1) % 2, (l + 1) % DEPTH)
            W x1[ITEM_ROWS], v1[ITEM_COLS];
            UNROLLED_RANGE(r, 0, ITEM_ROWS, 4)
                vstore4(xs[l % 2][r / 4], 0, x1 + r);
            UNROLLED_RANGE(c, 0, ITEM_COLS, 4)
                vstore4(vs[l % 2][c / 4], 0, v1 + c);
            /* Every other column is processed backwards, so that consecutive multiplications share a factor. */
            UNROLLED(c, ITEM_COLS) UNROLLED(i, ITEM_ROWS) {
                const int r = c % 2 ? ITEM_ROWS - 1 - i : i;
                acc[r][c] += x1[r] * v1[c];
            }
        }
    }
#endif

    const bool to_w = parts > 1;
    GLOBAL_MEM W *const to = to_w ? w + (part * t.s8 + batch) * m * n : z + batch * t.s3;
    const ga_ssize z0 = to_w ? n : t.s4, z1 = to_w ? 1 : t.s5;
    y += batch * t.s0;
    const W factor = to_w ? 1 : alpha;
    const bool is_added = add && !to_w;
    /* Store four neighbours in a row or column at once if they are aligned and inside the result. */
#define STORE_FOUR(at, row, column) { \
        const ga_ssize i = i0 + r / 4 * (ROWS / ITEM_ROWS * 4) + tile_y + r % 4; \
        const ga_ssize j = j0 + c / 4 * (COLS / ITEM_COLS * 4) + tile_x + c % 4; \
        W sum[4]; \
        UNROLLED(e, 4) { \
            const ga_ssize row_of = i + (row) * e, col_of = j + (column) * e; \
            sum[e] = factor * (at); \
            if (is_added && row_of < m && col_of < n) \
                sum[e] += beta * y[row_of * y0 + col_of * y1]; \
            if (!is_whole && row_of < m && col_of < n) \
                to[row_of * z0 + col_of * z1] = sum[e]; \
        } \
        if (is_whole && i < m && j < n) \
            *(GLOBAL_MEM float4 *)(to + i * z0 + j * z1) = vload4(0, sum); \
    }
    const uint tile_x = opaque(tx * 4), tile_y = opaque(ty * 4);
    const bool by_columns = z0 == 1 && z1 != 1;
    const bool is_whole = (size_t)to % 16 == 0 && (by_columns ? z1 % 4 == 0 && m % 4 == 0 : z1 == 1 && z0 % 4 == 0 && n % 4 == 0);
    if (by_columns) {
        UNROLLED(c, ITEM_COLS) UNROLLED_RANGE(r, 0, ITEM_ROWS, 4)
            STORE_FOUR(acc[r + e][c], 1, 0)
        return;
    }
    UNROLLED(r, ITEM_ROWS) UNROLLED_RANGE(c, 0, ITEM_COLS, 4)
        STORE_FOUR(acc[r][c + e], 0, 1)
}

/* Compute a tile of unaligned matrices, number by number. This is not inlined, so that it uses none of the loop's
   registers. */
__attribute__((noinline))
static void BY_NUMBERS(GLOBAL_MEM const T *a, GLOBAL_MEM const T *b, GLOBAL_MEM const T *y, GLOBAL_MEM T *to, long16 s,
                       long16 t, ga_ssize k, ga_ssize i0, ga_ssize j0, W alpha, W beta)
{
    const bool to_w = t.s6 > 1;
    const ga_ssize z0 = to_w ? s.s1 : t.s4, z1 = to_w ? 1 : t.s5;
    #pragma unroll 1
    for (int e = get_local_id(0); e < ROWS * COLS; e += ITEMS) {
        const ga_ssize i = e / COLS, j = e % COLS;
        if (i0 + i >= s.s0 || j0 + j >= s.s1)
            continue;
        W sum = 0;
        #pragma unroll 1
        for (ga_ssize l = 0; l < k; ++l)
            sum += a[i * s.s4 + l * s.s5] * b[j * s.s7 + l * s.s8];
        if (!to_w)
            sum *= alpha;
        if (!to_w && s.sB)
            sum += beta * y[(i0 + i) * t.s1 + (j0 + j) * t.s2];
        to[(i0 + i) * z0 + (j0 + j) * z1] = sum;
    }
}
