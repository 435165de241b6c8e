/* The kernel for products of matrices by the tensor cores of whole warpgroups, see warpgroup_kernels.py. */

__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
KERNEL void MATMUL(long16 s, long16 t, W alpha, W beta, ARRAY T *a, ARRAY T *b, ARRAY T *y,
                   ARRAY T *z, ARRAY W *w)
{
    __local uint its_tiles[LOCAL_WORDS] __attribute__((aligned(1024)));
    const MEMORY memory = (MEMORY)ADDRESS_OF(its_tiles);
    const ga_ssize m = s.s0, n = s.s1, a_row = s.s4, a_step = s.s5, b_col = s.s7, b_step = s.s8;
    const ga_ssize y0 = t.s1, y1 = t.s2, z0 = t.s4, z1 = t.s5;
    const uint parts = t.s6;
    const bool add = s.sB;
    /* Groups that run side by side share rows and columns, which the cache then holds: bands of tiles, column by
       column. */
    /* There are fewer tiles than 2**32, and shorter numbers are quicker to divide. */
    const uint tiles_m = (m + ROWS - 1) / ROWS, tiles_n = (n + COLS - 1) / COLS;
    const uint of_matrix = get_group_id(0) % (tiles_m * tiles_n), matrix = get_group_id(0) / (tiles_m * tiles_n);
    const uint band = of_matrix / (BAND * tiles_n) * BAND, in_band = of_matrix % (BAND * tiles_n);
    const uint height = min((uint)BAND, tiles_m - band);
    const ga_ssize i0 = (ga_ssize)(band + in_band % height) * ROWS, j0 = (ga_ssize)(in_band / height) * COLS;
    const ga_ssize batch = matrix / parts, part = matrix % parts;
    const ga_ssize l0 = part * t.s7, k = max(min(s.s2 - l0, (ga_ssize)t.s7), (ga_ssize)0);
    const uint item = get_local_id(0), warp = item / 32, g = item % 32 / 4, r = item % 4;
    const int rows = (int)min((ga_ssize)ROWS, m - i0), cols = (int)min((ga_ssize)COLS, n - j0);
    a += batch * s.s3 + i0 * a_row + l0 * a_step;
    b += batch * s.s6 + j0 * b_col + l0 * b_step;
    /* Numbers of an operand are loaded several at a time if these are always aligned, and none of them is beyond the
       last. */
    const bool a_wide = a_step == 1 && a_row % 4 == 0 && k % 4 == 0 && (ulong)a % 16 == 0;
    const bool b_wide = b_col == 1 && b_step % 4 == 0 && cols % 4 == 0 && (ulong)b % 16 == 0;
    share_unit();
    float acc[COLS / 2];

    /* Where an item loads its numbers of the left matrix, and its units of the right one, and where it stores these. */
    GLOBAL_MEM const T *x = a + A_ROW(0) * a_row + 4 * r * a_step, *v[UNITS];
    uint to[UNITS];
    #pragma unroll
    for (int u = 0; u < UNITS; ++u) {
        v[u] = b + B_COLUMN(UNIT(u)) * b_col + B_TERM(UNIT(u)) * b_step;
        to[u] = opaque(B_PLACE(UNIT(u)));
    }
    /* Of no terms, a stage of zeros is multiplied. */
    const int stages = max((int)((k + DEPTH - 1) / DEPTH), 1);
    /* Stages of which nothing is beyond the last row, column or term. */
    const int whole = a_wide && b_wide && rows == ROWS && cols == COLS ? (int)(k / DEPTH) : 0;

#define TERMS_OF(stage) (int)min(k - (ga_ssize)(stage) * DEPTH, (ga_ssize)DEPTH)
#define LOAD_WHOLE_LEFT(numbers) { \
        wide_left(x, a_row, a_step, numbers, 0, ROWS, DEPTH); \
        x += DEPTH * a_step; \
    }
#define LOAD_WHOLE_RIGHT(u, numbers) { \
        wide_right(v[u], b_col, b_step, numbers, 0, COLS, DEPTH); \
        v[u] += DEPTH * b_step; \
    }
#define LOAD_LEFT(stage, numbers) { \
        if (a_wide) \
            wide_left(x, a_row, a_step, numbers, A_ROW(0), rows, TERMS_OF(stage) - (int)(4 * r)); \
        else \
            single_left(x, a_row, a_step, numbers, A_ROW(0), rows, TERMS_OF(stage) - (int)(4 * r)); \
        x += DEPTH * a_step; \
    }
#define LOAD_RIGHT(stage, u, numbers) { \
        if (b_wide) \
            wide_right(v[u], b_col, b_step, numbers, B_COLUMN(UNIT(u)), cols, TERMS_OF(stage) - (int)B_TERM(UNIT(u))); \
        else \
            single_right(v[u], b_col, b_step, numbers, B_COLUMN(UNIT(u)), cols, TERMS_OF(stage) - (int)B_TERM(UNIT(u))); \
        v[u] += DEPTH * b_step; \
    }

    /* The tensor cores multiply a stage, while the next one of the right matrix is stored. What is loaded takes some
       stages to arrive; registers of the left matrix are read until the stage after theirs is awaited. Where nothing is
       beyond the last row, column or term, four stages are multiplied without a look at that. */
    float left[4][8], right[2][UNITS][16];
    int side = 0;
    #pragma unroll 1
    for (int first = -4; first < stages; first += 4)
        if (first >= 0 && first + 6 < whole) {
            #pragma unroll
            for (int set = 0; set < 4; ++set) {
                #pragma unroll
                for (int e = 0; e < 8; ++e)
                    left[set][e] *= ROUNDING;
                multiply_stage(memory, acc, left[set], side * STAGE_WORDS, first + set > 0);
                side = side == STAGES - 1 ? 0 : side + 1;
                #pragma unroll
                for (int u = 0; u < UNITS; ++u)
                    if (IS_UNIT(u))
                        store_right(memory, side * STAGE_WORDS + to[u], right[(set + 1) % 2][u]);
                publish_numbers();
                #pragma unroll
                for (int u = 0; u < UNITS; ++u)
                    if (IS_UNIT(u))
                        LOAD_WHOLE_RIGHT(u, right[(set + 1) % 2][u])
                LOAD_WHOLE_LEFT(left[(set + 2) % 4])
                await_products();
                barrier(CLK_LOCAL_MEM_FENCE);
            }
        } else {
            #pragma unroll
            for (int set = 0; set < 4; ++set) {
                const int stage = first + set;
                if (stage >= 0 && stage < stages) {
                    #pragma unroll
                    for (int e = 0; e < 8; ++e)
                        left[set][e] *= ROUNDING;
                    multiply_stage(memory, acc, left[set], side * STAGE_WORDS, stage > 0);
                }
                side = side == STAGES - 1 ? 0 : side + 1;
                if (stage >= -1 && stage + 1 < stages) {
                    #pragma unroll
                    for (int u = 0; u < UNITS; ++u)
                        if (IS_UNIT(u))
                            store_right(memory, side * STAGE_WORDS + to[u], right[(set + 1) % 2][u]);
                    publish_numbers();
                }
                /* Fences would wait for what is loaded. */
                #pragma unroll
                for (int u = 0; u < UNITS; ++u)
                    if (IS_UNIT(u) && stage >= -3 && stage + 3 < stages)
                        LOAD_RIGHT(stage + 3, u, right[(set + 1) % 2][u])
                if (stage >= -2 && stage + 2 < stages)
                    LOAD_LEFT(stage + 2, left[(set + 2) % 4])
                await_products();
                barrier(CLK_LOCAL_MEM_FENCE);
            }
        }
    await_all_products(acc);
#undef LOAD_WHOLE_LEFT
#undef LOAD_WHOLE_RIGHT
#undef LOAD_LEFT
#undef LOAD_RIGHT
#undef TERMS_OF

    y += batch * t.s0;
    z += batch * t.s3;
    w += (part * t.s8 + batch) * m * n;
    /* An item has four neighbours of a row, which it stores at once where no vector is cut, and all are aligned. */
    GLOBAL_MEM W *const out = parts > 1 ? w : z;
    const ga_ssize out0 = parts > 1 ? n : z0, out1 = parts > 1 ? 1 : z1;
    const bool are_whole = out1 == 1 && out0 % 4 == 0 && n % 4 == 0 && (ulong)out % 16 == 0;
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int ti = A_ROW(h);
        if (ti >= rows)
            continue;
        #pragma unroll
        for (int q = 0; q < COLS / 16; ++q) {
            const int tj = COLUMN(q);
            W sum[4];
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                sum[e] = acc[FRAGMENT(q, e) * 4 + h * 2 + SIDE_OF_FRAGMENT(q, e)];
                if (parts == 1) {
                    sum[e] *= alpha;
                    if (add && tj + e < cols)
                        sum[e] += beta * y[(i0 + ti) * y0 + (j0 + tj + e) * y1];
                }
            }
            if (are_whole) {
                if (tj < cols)
                    *(GLOBAL_MEM float4 *)(out + (i0 + ti) * out0 + (j0 + tj)) = vload4(0, sum);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (tj + e < cols)
                        out[(i0 + ti) * out0 + (j0 + tj + e) * out1] = sum[e];
            }
        }
    }
}

/* Load an item's four terms, which stand side by side, of each of two rows, eight rows apart; zeros are beyond the last
   row and term. */
static void wide_left(GLOBAL_MEM const T *x, ga_ssize across, ga_ssize step, float *numbers, int row, int rows,
                      int terms)
{
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        const float4 four = row + 8 * h < rows && 0 < terms ? *(GLOBAL_MEM const float4 *)(x + 8 * h * across) : 0;
        numbers[h] = four.x;
        numbers[2 + h] = four.y;
        numbers[4 + h] = four.z;
        numbers[6 + h] = four.w;
    }
}

/* The same of numbers that may stand anywhere. */
static void single_left(GLOBAL_MEM const T *x, ga_ssize across, ga_ssize step, float *numbers, int row, int rows,
                        int terms)
{
    #pragma unroll
    for (int e = 0; e < 8; ++e)
        numbers[e] = row + e % 2 * 8 < rows && e / 2 < terms ? x[e % 2 * 8 * across + e / 2 * step] : 0;
}

/* Load a unit of the right matrix: each fourth term, of four columns that stand side by side. */
static void wide_right(GLOBAL_MEM const T *x, ga_ssize across, ga_ssize step, float *numbers, int col, int cols,
                       int terms)
{
    #pragma unroll
    for (int v = 0; v < 4; ++v)
        vstore4(col < cols && 4 * v < terms ? *(GLOBAL_MEM const float4 *)(x + 4 * v * step) : 0, v, numbers);
}

/* The same of numbers that may stand anywhere. */
static void single_right(GLOBAL_MEM const T *x, ga_ssize across, ga_ssize step, float *numbers, int col, int cols,
                         int terms)
{
    #pragma unroll
    for (int e = 0; e < 16; ++e)
        numbers[e] = col + e % 4 < cols && e / 4 * 4 < terms ? x[e % 4 * across + e / 4 * 4 * step] : 0;
}

/* Store a unit, rounded. The instruction cuts off bits below TF32's: numbers are first increased by about a half of what
   is cut, so that they are rounded, those of TF32 to themselves. */
static void store_right(MEMORY memory, uint to, const float *x)
{
    #pragma unroll
    for (int v = 0; v < 4; ++v)
        store_four(memory, to + v * (COLS / 4) * DEPTH, x[v] * ROUNDING, x[4 + v] * ROUNDING, x[8 + v] * ROUNDING,
                   x[12 + v] * ROUNDING);
}
