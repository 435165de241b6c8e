/* The kernels for small product tiles whose numbers are read four at a time, see quad_tiles.py. */

__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
KERNEL void MATMUL(long16 s, long16 t, W alpha, W beta, ARRAY T *a, ARRAY T *b, ARRAY T *y, ARRAY T *z, ARRAY W *w)
{
    /* Two tiles of each matrix; after the loop, all partial sums. */
    __local float4 memory[LOCAL_QUADS];
    __local float4 *const right = memory + 2 * ROWS * PITCH;
    FIND_TILE
    const int item = get_local_id(0), split = item / TEAM, within = item % TEAM;
    const int tx = within % (COLS / 4), ty = within / (COLS / 4);

    /* Where an item loads quads from and stores them to. Out-of-range rows and columns are clamped to the last one. */
#define A_LOADS (ROWS * DEPTH / 4 / ITEMS)
#define B_LOADS (COLS * DEPTH / 4 / ITEMS)
#define APART (ITEMS / (DEPTH / 4))
    const int a_l = item % (DEPTH / 4) * 4, a_i = item / (DEPTH / 4);
    GLOBAL_MEM const float *a_at[A_LOADS], *b_at[B_LOADS];
    UNROLLED(v, A_LOADS)
        a_at[v] = a + (min(a_i + v * APART, last_i) * a_row + a_l);
#define RIGHT_SIZE (B_ALONG ? COLS * PITCH : DEPTH * COLS / 4)
#define RIGHT_PLACE(v) (B_ALONG ? (a_i + (v) * APART) * PITCH + a_l / 4 : item + (v) * ITEMS)
#define B_L(v) (B_ALONG ? a_l : item / (COLS / 4) + (v) * (ITEMS / (COLS / 4)))
    UNROLLED(v, B_LOADS)
        b_at[v] = b + (B_ALONG ? min(a_i + v * APART, last_j) * b_col + a_l
                               : min(item % (COLS / 4) * 4, last_j - 3) + B_L(v) * b_step);
    float4 a_next[A_LOADS], b_next[B_LOADS];
    float acc[ITEM_ROWS][4];

    /* If there is nothing to load, an item rereads the start of the matrix, which avoids a branch. */
#define LOAD_TILES(terms, a_is_there, b_is_there) \
    UNROLLED(v, A_LOADS) { \
        a_next[v] = *(GLOBAL_MEM const float4 *)((a_is_there) ? a_at[v] : a); \
        a_at[v] += (terms); \
    } \
    UNROLLED(v, B_LOADS) { \
        b_next[v] = *(GLOBAL_MEM const float4 *)((b_is_there) ? b_at[v] : b); \
        b_at[v] += (terms) * b_step; \
    }
#define KEEP_TILES(side) \
    UNROLLED(v, A_LOADS) \
        memory[((side) * ROWS + a_i + v * APART) * PITCH + a_l / 4] = a_next[v]; \
    UNROLLED(v, B_LOADS) \
        right[(side) * RIGHT_SIZE + RIGHT_PLACE(v)] = b_next[v];

    /* The first tile is the partial one, so that all others are whole. */
    const int more = k > 0 ? (k - 1) / DEPTH : 0, there = k - more * DEPTH;
    LOAD_TILES(there, a_l < there, B_L(v) < there)
    UNROLLED(v, A_LOADS)
        a_next[v] = a_l < there ? a_next[v] : (float4)(0);
    UNROLLED(v, B_LOADS)
        b_next[v] = B_L(v) < there ? b_next[v] : (float4)(0);
    /* Prefetch the addends as well. */
    READ_ADDED
    UNROLLED(r, ITEM_ROWS) UNROLLED(c, 4)
        acc[r][c] = 0;
    KEEP_TILES(0)
    LOAD_TILES(DEPTH, more > 0, more > 0)
    local_barrier();
#if B_ALONG
#define ADD_TERMS(side, quad) \
    UNROLLED(c, 4) { \
        const float4 v = right[(side) * RIGHT_SIZE + (tx + c * (COLS / 4)) * PITCH + quad]; \
        UNROLLED(r, ITEM_ROWS) { \
            acc[r][c] += x[r].x * v.x; \
            acc[r][c] += x[r].y * v.y; \
            acc[r][c] += x[r].z * v.z; \
            acc[r][c] += x[r].w * v.w; \
        } \
    }
#else
#define ADD_TERM(side, of, term) { \
        const float4 v = right[(side) * RIGHT_SIZE + (term) * (COLS / 4) + tx]; \
        UNROLLED(r, ITEM_ROWS) { \
            acc[r][0] += x[r].of * v.x; \
            acc[r][1] += x[r].of * v.y; \
            acc[r][2] += x[r].of * v.z; \
            acc[r][3] += x[r].of * v.w; \
        } \
    }
#define ADD_TERMS(side, quad) \
    ADD_TERM(side, x, 4 * quad) \
    ADD_TERM(side, y, 4 * quad + 1) \
    ADD_TERM(side, z, 4 * quad + 2) \
    ADD_TERM(side, w, 4 * quad + 3)
#endif
    /* Multiply a tile, while the next one is stored over the previous one, and the one after it is loaded. */
#define ADD_TILE(side, rest) \
    if ((rest) > 0) { \
        KEEP_TILES(1 - (side)) \
    } \
    LOAD_TILES(DEPTH, (rest) > 1, (rest) > 1) \
    UNROLLED(q, DEPTH / SPLITS / 4) { \
        const int quad = split * (DEPTH / SPLITS / 4) + q; \
        float4 x[ITEM_ROWS]; \
        UNROLLED(r, ITEM_ROWS) \
            x[r] = memory[((side) * ROWS + ty + r * (ROWS / ITEM_ROWS)) * PITCH + quad]; \
        ADD_TERMS(side, quad) \
    } \
    local_barrier();
    for (int rest = more; rest >= 0; rest -= 2) {
        ADD_TILE(0, rest)
        if (rest > 0) {
            ADD_TILE(1, rest - 1)
        }
    }
    /* Items that share a sum write their partial sums over the tiles, and each item adds up some of them. */
    __local float *const sums = (__local float *)memory;
    UNROLLED(r, ITEM_ROWS) {
        const int row = (split * ROWS + ty + r * (ROWS / ITEM_ROWS)) * COLS;
#if B_ALONG
        UNROLLED(c, 4)
            sums[row + tx + c * (COLS / 4)] = acc[r][c];
#else
        memory[row / 4 + tx] = (float4)(acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
#endif
    }
    local_barrier();
#define QUAD_OF(e) (e)
    STORE_SUMS
}

/* The same on tensor cores. Each warp computes all sums over some of the terms, and reads these terms directly into
   fragments: an item's terms for two instructions are contiguous in memory. */
__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
KERNEL void MATMUL_TF32(long16 s, long16 t, W alpha, W beta, ARRAY T *a, ARRAY T *b, ARRAY T *y, ARRAY T *z, ARRAY W *w)
{
    __local float4 memory[LOCAL_QUADS];
    FIND_FAR_TILE
    const int item = get_local_id(0), warp = item / 32, g = item % 32 / 4, r = item % 4;
    const int first_l = warp * 16 + r * 4;
    GLOBAL_MEM const float *a_at[ROWS / 8], *b_at[COLS / 8];
    UNROLLED(i, ROWS / 8)
        a_at[i] = a + min(i * 8 + g, last_i) * a_row + first_l;
    UNROLLED(j, COLS / 8)
        b_at[j] = b + min(j * 8 + g, last_j) * b_col + first_l * b_step;
    float acc[ROWS / 16][COLS / 8][4];
    UNROLLED(i, ROWS / 16) UNROLLED(j, COLS / 8) UNROLLED(c, 4)
        acc[i][j][c] = 0;
    READ_ADDED
    for (int l = first_l; l - first_l < k; l += AHEAD * TERMS) {
        float4 x[AHEAD][ROWS / 8], v[AHEAD][COLS / 8];
        UNROLLED(step, AHEAD) {
            const bool is_there = l + step * TERMS < k;
            UNROLLED(i, ROWS / 8) {
                x[step][i] = is_there ? *(GLOBAL_MEM const float4 *)(a_at[i] + step * TERMS) : (float4)(0);
            }
            UNROLLED(j, COLS / 8) {
#if B_ALONG
                v[step][j] = is_there ? *(GLOBAL_MEM const float4 *)(b_at[j] + step * TERMS) : (float4)(0);
#else
                GLOBAL_MEM const float *const at = b_at[j] + step * TERMS * b_step;
                v[step][j] = is_there ? (float4)(at[0], at[b_step], at[2 * b_step], at[3 * b_step]) : (float4)(0);
#endif
            }
        }
        UNROLLED(i, ROWS / 8)
            a_at[i] += AHEAD * TERMS;
        UNROLLED(j, COLS / 8)
            b_at[j] += AHEAD * TERMS * b_step;
        UNROLLED(step, AHEAD) {
            if (l - first_l + step * TERMS >= k)
                break;
            UNROLLED(i, ROWS / 8)
                x[step][i] *= ROUNDING;
            UNROLLED(j, COLS / 8)
                v[step][j] *= ROUNDING;
            UNROLLED(i, ROWS / 16) UNROLLED(j, COLS / 8) {
                const float4 upper = x[step][2 * i], lower = x[step][2 * i + 1], of = v[step][j];
                const uint first_x[4] = {as_uint(upper.x), as_uint(lower.x), as_uint(upper.y), as_uint(lower.y)};
                const uint first_v[2] = {as_uint(of.x), as_uint(of.y)};
                const uint next_x[4] = {as_uint(upper.z), as_uint(lower.z), as_uint(upper.w), as_uint(lower.w)};
                const uint next_v[2] = {as_uint(of.z), as_uint(of.w)};
                MULTIPLY_ADD(EXCHANGE, acc[i][j], first_x, first_v);
                MULTIPLY_ADD(EXCHANGE, acc[i][j], next_x, next_v);
            }
        }
    }
    /* Columns are permuted in each row to avoid bank conflicts. */
#define PLACE(row, col) ((warp * ROWS + (row)) * COLS + ((col) ^ (row) % 4 * 8))
    __local float *const sums = (__local float *)memory;
    UNROLLED(i, ROWS / 16) UNROLLED(j, COLS / 8) UNROLLED(side, 2) {
        __local float *const at = sums + PLACE(i * 16 + side * 8 + g, j * 8 + 2 * r);
        *(__local float2 *)at = (float2)(acc[i][j][2 * side], acc[i][j][2 * side + 1]);
    }
    local_barrier();
#define QUAD_OF(e) ((e) ^ (e) / (COLS / 4) % 4 * 2)
    STORE_SUMS
}

/* Statements that locate a group's tile. */
void find_tile()
{
    /* 32-bit multiplications are faster, and multiplying by a reciprocal is faster than dividing. */
#define QUOTIENT(number, reciprocal) (int)((ulong)(uint)(number) * (uint)(reciprocal) >> 31)
    const int m = s.s0, n = s.s1, a_row = s.s4;
    const int b_col = B_ALONG ? s.s7 : 1, b_step = B_ALONG ? 1 : s.s8;
    const int y0 = t.s1, y1 = t.s2, z0 = t.s4, z1 = t.s5, parts = t.s6;
    const bool add = s.sB && parts == 1;
    const int tiles = (n + COLS - 1) / COLS, bands = (m + ROWS - 1) / ROWS, place = (int)get_group_id(0);
    const int band_of_all = QUOTIENT(place, t.s9), matrix = QUOTIENT(band_of_all, t.sA), batch = QUOTIENT(matrix, t.sB);
    const int j0 = (place - band_of_all * tiles) * COLS, i0 = (band_of_all - matrix * bands) * ROWS;
    const int part = matrix - batch * parts, l0 = part * (int)t.s7, k = max(min((int)s.s2 - l0, (int)t.s7), 0);
    const int last_i = min(ROWS, m - i0) - 1, last_j = min(COLS, n - j0) - 1;
    a += batch * s.s3 + (i0 * a_row + l0);
    b += batch * s.s6 + (j0 * b_col + l0 * b_step);
    y += batch * t.s0 + (i0 * y0 + j0 * y1);
}

/* The same with 64-bit integers: with 32-bit ones, the compiler keeps so many addresses in registers that the tensor
   core kernel spills. */
void find_far_tile()
{
    const ga_ssize m = s.s0, n = s.s1, a_row = s.s4, b_col = s.s7, b_step = s.s8;
    const ga_ssize y0 = t.s1, y1 = t.s2, z0 = t.s4, z1 = t.s5, parts = t.s6;
    const bool add = s.sB && parts == 1;
    /* There are fewer than 2**32 tiles, and 32-bit divisions are faster. */
    const uint tiles = (uint)((n + COLS - 1) / COLS), bands = (uint)((m + ROWS - 1) / ROWS);
    uint place = (uint)get_group_id(0);
    const ga_ssize j0 = (ga_ssize)(place % tiles) * COLS;
    place /= tiles;
    const ga_ssize i0 = (ga_ssize)(place % bands) * ROWS;
    place /= bands;
    const ga_ssize batch = place / (uint)parts, part = place % (uint)parts;
    const ga_ssize l0 = part * t.s7;
    const int k = (int)max(min(s.s2 - l0, t.s7), (ga_ssize)0);
    const int last_i = (int)min((ga_ssize)ROWS, m - i0) - 1, last_j = (int)min((ga_ssize)COLS, n - j0) - 1;
    a += batch * s.s3 + i0 * a_row + l0;
    b += batch * s.s6 + j0 * b_col + l0 * b_step;
    y += batch * t.s0 + i0 * y0 + j0 * y1;
}

/* Statements that read the addends of an item's sums. */
void read_added()
{
    float before[4 * TURNS];
    UNROLLED(q, 4 * TURNS) {
        const int e = (q / 4 * ITEMS + item) * 4 + q % 4, i = e / COLS, j = e % COLS;
        before[q] = add && i <= last_i && j <= last_j ? beta * y[i * y0 + j * y1] : 0;
    }
}

/* Statements that add up the partial sums, and store the results. */
void store_sums()
{
    GLOBAL_MEM float *const to = parts > 1 ? w + (part * (int)t.s8 + batch) * (m * n) : z + batch * t.s3;
    const int to0 = parts > 1 ? n : z0, to1 = parts > 1 ? 1 : z1;
    const float factor = parts > 1 ? 1 : alpha;
    const bool is_whole = to1 == 1 && to0 % 4 == 0 && n % 4 == 0 && (size_t)to % sizeof(float4) == 0;
    UNROLLED(q, TURNS) {
        const int e = q * ITEMS + item, i = e / (COLS / 4), j = e % (COLS / 4) * 4;
        if (i > last_i || j > last_j)
            continue;
        float4 sum = memory[QUAD_OF(e)];
        UNROLLED_RANGE(other, 1, SPLITS, 1)
            sum += memory[other * (ROWS * COLS / 4) + QUAD_OF(e)];
        sum = factor * sum + (float4)(before[4 * q], before[4 * q + 1], before[4 * q + 2], before[4 * q + 3]);
        GLOBAL_MEM float *const at = to + ((i0 + i) * to0 + (j0 + j) * to1);
        if (is_whole) {
            *(GLOBAL_MEM float4 *)at = sum;
            continue;
        }
        at[0] = sum.x;
        if (j + 1 <= last_j)
            at[to1] = sum.y;
        if (j + 2 <= last_j)
            at[2 * to1] = sum.z;
        if (j + 3 <= last_j)
            at[3 * to1] = sum.w;
    }
}
