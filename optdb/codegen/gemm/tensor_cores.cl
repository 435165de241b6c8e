/* The kernel for matrix products on tensor cores, see tensor_cores.py. */

__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
KERNEL void MATMUL(long16 s, long16 t, W alpha, W beta, ARRAY T *a, ARRAY T *b, ARRAY T *y,
                   ARRAY T *z, ARRAY W *w)
{
    __local uint its_tiles[LOCAL_WORDS] __attribute__((aligned(128)));
    const MEMORY memory = (MEMORY)ADDRESS_OF(its_tiles);
    FIND_TILE
    const ga_ssize z0 = t.s4, z1 = t.s5;
    const uint item = get_local_id(0), lane = item % 32, warp = item / 32, g = lane / 4, r = lane % 4;
    /* An operand is copied in 16-byte pieces if all of them are aligned. */
    const bool a_wide = (A_ALONG ? a_step : a_row) == 1 && (A_ALONG ? a_row : a_step) % PIECE == 0 && (ulong)a % 16 == 0;
    const bool b_wide = (B_ALONG ? b_step : b_col) == 1 && (B_ALONG ? b_col : b_step) % PIECE == 0 && (ulong)b % 16 == 0;
    const uint wi = warp % (ROWS / WARP_ROWS) * WARP_ROWS, wj = warp / (ROWS / WARP_ROWS) * WARP_COLS;
    float acc[WARP_ROWS / 16][WARP_COLS / 8][4];
    UNROLLED(i, WARP_ROWS / 16) UNROLLED(j, WARP_COLS / 8) UNROLLED(c, 4)
        acc[i][j][c] = 0;

    /* Source and destination of an item's first piece, and positions of fragments; opaque values stay in registers. */
    GLOBAL_MEM const T *x = a, *v = b;
    if (a_wide)
        x += A_ALONG ? item / (TERMS / PIECE) * a_row + item % (TERMS / PIECE) * PIECE
                     : item / (ROWS / PIECE) * a_step + item % (ROWS / PIECE) * PIECE;
    if (b_wide)
        v += B_ALONG ? item / (TERMS / PIECE) * b_col + item % (TERMS / PIECE) * PIECE
                     : item / (COLS / PIECE) * b_step + item % (COLS / PIECE) * PIECE;
    const uint x_to = opaque(piece_A(item)), v_to = opaque(piece_B(item));
    uint left_at[A_PLACES], right_at[B_PLACES];
    UNROLLED(place, A_PLACES)
        left_at[place] = opaque(place_A(wi, place, lane));
    UNROLLED(place, B_PLACES)
        right_at[place] = opaque(ROWS * DEPTH + place_B(wj, place, lane));
    /* The number of stages whose tiles are entirely inside the matrices. */
    const int whole = a_wide && b_wide && rows == ROWS && cols == COLS ? (int)(k / TERMS) : 0;

#define COPY(stage, side) { \
        const uint base = (side) * STAGE_WORDS; \
        if ((stage) < whole) { \
            whole_A(memory, base + x_to, x, a_row, a_step); \
            whole_B(memory, base + ROWS * DEPTH + v_to, v, b_col, b_step); \
        } else { \
            const int terms = (int)min(k - (ga_ssize)(stage) * TERMS, (ga_ssize)TERMS); \
            if (a_wide) \
                wide_A(memory, base, x, a_row, a_step, rows, terms, item); \
            else \
                single_A(memory, base, x, a_row, a_step, rows, terms, item); \
            if (b_wide) \
                wide_B(memory, base + ROWS * DEPTH, v, b_col, b_step, cols, terms, item); \
            else \
                single_B(memory, base + ROWS * DEPTH, v, b_col, b_step, cols, terms, item); \
        } \
        x += TERMS * a_step; \
        v += TERMS * b_step; \
    }

    const int stages = (int)((k + TERMS - 1) / TERMS);
    UNROLLED(stage, STAGES - 1) {
        if (stage < stages)
            COPY(stage, stage)
        commit_copies();
    }
    /* The next step's fragments are loaded while the current ones are multiplied. The right matrix's fragments are
       double-buffered; each half of the left matrix's fragments is replaced after it has been multiplied. */
    uint left[WARP_ROWS / 16][4], right[2][WARP_COLS / 8][2];
    int side = 0, next = STAGES - 1;
    await_copies();
    load_B(memory, 0, 0, right_at, right[0]);
    load_A(memory, 0, 0, left_at, left, 0);
    load_A(memory, 0, 0, left_at, left, 1);
    for (int stage = 0; stage < stages; ++stage) {
#if IS_SPLIT
        /* The instruction also truncates sums, and these errors accumulate in long sums. */
        float sums_of_stage[WARP_ROWS / 16][WARP_COLS / 8][4];
        UNROLLED(i, WARP_ROWS / 16) UNROLLED(j, WARP_COLS / 8) UNROLLED(c, 4)
            sums_of_stage[i][j][c] = 0;
#endif
        UNROLLED(step, DEPTH / 8) {
            if (step == 0) {
                if (stage + STAGES - 1 < stages)
                    COPY(stage + STAGES - 1, next)
                commit_copies();
                next = next == STAGES - 1 ? 0 : next + 1;
            }
            if (step == DEPTH / 8 - 1) {
                await_copies();
                side = side == STAGES - 1 ? 0 : side + 1;
            }
            const uint base = side * STAGE_WORDS, l = (step + 1) % (DEPTH / 8) * 8;
            load_B(memory, base, l, right_at, right[(step + 1) % 2]);
            multiply(memory, SUMS, left, right[step % 2], 0);
            load_A(memory, base, l, left_at, left, 0);
            multiply(memory, SUMS, left, right[step % 2], 1);
            load_A(memory, base, l, left_at, left, 1);
        }
#if IS_SPLIT
        UNROLLED(i, WARP_ROWS / 16) UNROLLED(j, WARP_COLS / 8) UNROLLED(c, 4)
            acc[i][j][c] += sums_of_stage[i][j][c];
#endif
    }

    y += batch * t.s0;
    z += batch * t.s3;
    w += (part * t.s8 + batch) * m * n;
#if STORES_VECTORS
    /* An item stores its neighbours in a row as one vector if they are aligned and inside the result. */
    GLOBAL_MEM W *const to = parts > 1 ? w : z;
    const ga_ssize to0 = parts > 1 ? n : z0;
    if ((parts > 1 || z1 == 1) && to0 % 4 == 0 && n % 4 == 0 && (ulong)to % 16 == 0) {
        UNROLLED(h, WARP_ROWS / 8) {
            const int ti = wi + order_A(h * 8 + g);
            if (ti >= rows)
                continue;
            UNROLLED(q, WARP_COLS / 4 / VECTOR) {
                const int tj = wj + COLUMN(q, 0);
                if (tj >= cols)
                    continue;
                W sum[VECTOR];
                UNROLLED(e, VECTOR) {
                    sum[e] = acc[h / 2][FRAGMENT(q, e)][h % 2 * 2 + SIDE_OF_FRAGMENT(q, e)];
                    if (parts == 1) {
                        sum[e] *= alpha;
                        if (add)
                            sum[e] += beta * y[(i0 + ti) * y0 + (j0 + tj + e) * y1];
                    }
                }
                *(GLOBAL_MEM VECTOR_TYPE *)(to + (i0 + ti) * to0 + (j0 + tj)) = VLOAD_VECTOR(0, sum);
            }
        }
        return;
    }
#endif
    /* Each warp transposes sixteen rows of sums at a time, so that neighbouring items store neighbouring elements. */
    __local float *sums = (__local float *)its_tiles;
    UNROLLED(i, WARP_ROWS / 16) {
        barrier(CLK_LOCAL_MEM_FENCE);
        UNROLLED(j, WARP_COLS / 8) UNROLLED(c, 4)
            sums[(wi / WARP_ROWS * 16 + g + c / 2 * 8) * (COLS + 8) + wj + j * 8 + 2 * r + c % 2] = acc[i][j][c];
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 1
        for (int e = item; e < ROWS / WARP_ROWS * 16 * COLS; e += ITEMS) {
            const int ti = e / COLS / 16 * WARP_ROWS + order_A(i * 16 + e / COLS % 16), tj = e % COLS;
            if (ti >= rows || tj >= cols)
                continue;
            const ga_ssize zi = i0 + ti, zj = j0 + tj;
            float sum = sums[e / COLS * (COLS + 8) + tj / WARP_COLS * WARP_COLS + order_B(tj % WARP_COLS)];
#if IS_SPLIT
            /* The parts of an infinity include NaN. */
            if (isnan(sum)) {
                sum = 0;
                for (ga_ssize l = 0; l < k && !isnan(sum); ++l)
                    sum += a[ti * a_row + l * a_step] * b[tj * b_col + l * b_step];
            }
#endif
            if (parts > 1) {
                w[zi * n + zj] = sum;
                continue;
            }
            sum *= alpha;
            if (add)
                sum += beta * LOAD(y[zi * y0 + zj * y1]);
            z[zi * z0 + zj * z1] = STORE(sum);
        }
    }
}

/* Macros that swizzle pieces in local memory, and that map rows and columns to fragments. Eight 16-byte pieces cover all
   banks once. Rows within one line of eight pieces share a permutation, and rows in the next line have a different one.
   Contiguous numbers belong to rows or columns of different fragments. */
void positions()
{
#define SWIZZLED(row) ((row) / (32 / DEPTH) % (DEPTH / 4))
#define EXCHANGED(l) (IS_ROUNDED ? (l) % 2 * 3 + (l) / 2 % 2 * 4 : (l) % 8)
#define order_A(i) (A_ACROSS ? (i) % 8 * (WARP_ROWS / 8) + (i) / 8 : (i))
#define order_B(i) (B_ACROSS ? (i) % (WARP_COLS / 8) * 8 + (i) / (WARP_COLS / 8) : (i))
/* Numbers of positions from which an item loads fragments. */
#define A_PLACES (A_ALONG ? DEPTH / 8 : A_ACROSS ? (WARP_ROWS + 31) / 32 : WARP_ROWS / 16)
#define B_PLACES (B_ALONG ? DEPTH / 8 : B_ACROSS ? (WARP_COLS + 31) / 32 : WARP_COLS / 16)
/* Rows are multiplied in two halves if each half has its own fragments, which are loaded separately. */
#define IN_HALF(i, half_of) ((IS_WHOLE ? 1 : (i) / HALF_ROWS) == (half_of))
/* Map element `e` of a stored vector `q` to its fragment, the fragment's side, and the column. */
#define STORED_AT(q, e) ((q) * VECTOR + (e))
#define FRAGMENT(q, e) (B_ACROSS ? STORED_AT(q, e) % (WARP_COLS / 8) : (q))
#define SIDE_OF_FRAGMENT(q, e) (B_ACROSS ? STORED_AT(q, e) / (WARP_COLS / 8) : (e))
#define COLUMN(q, e) (B_ACROSS ? 2 * r * (WARP_COLS / 8) + STORED_AT(q, e) : (q) * 8 + 2 * r + (e))
}

/* Copying functions. A LINE of 16-byte pieces has terms of one row if the tile is copied ALONG the terms, and otherwise
   rows of one term. SWIZZLE puts the pieces of eight lines into different banks. */

/* Return the destination of an item's first piece. */
static uint piece_SIDE(uint item)
{
    return (item / LINE * LINE + (item % LINE ^ SWIZZLE(item / LINE))) * 4;
}

/* Start to copy a tile that is entirely inside the matrix, piece by piece; `x` points to the item's first piece. */
static void whole_SIDE(MEMORY memory, uint to, GLOBAL_MEM const T *x, ga_ssize across, ga_ssize step)
{
    UNROLLED(v, SIDE * DEPTH / 4 / ITEMS)
        copy_async_all(memory, to + v * ITEMS * 4, x + v * (ITEMS / LINE) * (ALONG ? across : step));
}

/* The same for a tile that is partly outside the matrix: missing numbers become zeros. */
static void wide_SIDE(MEMORY memory, uint base, GLOBAL_MEM const T *x, ga_ssize across, ga_ssize step,
                      int rows, int terms, uint item)
{
    const int line = item / LINE, near = item % LINE;
    const int bytes = clamp(16 / PIECE * (ALONG ? terms : rows) - 16 * near, 0, 16);
    base += piece_SIDE(item);
    UNROLLED(v, SIDE * DEPTH / 4 / ITEMS)
        copy_async16(memory, base + v * ITEMS * 4, x + v * (ITEMS / LINE) * (ALONG ? across : step),
                     line + v * (ITEMS / LINE) < (ALONG ? rows : terms) ? bytes : 0);
}

/* The same number by number, for any strides and alignment; `x` points to the start of the tile. */
static void single_SIDE(MEMORY memory, uint base, GLOBAL_MEM const T *x, ga_ssize across, ga_ssize step,
                        int rows, int terms, uint item)
{
    #pragma unroll 4
    for (int v = 0; v < SIDE * TERMS / ITEMS; ++v) {
        const int line = (v * ITEMS + item) / (LINE * PIECE), near = (v * ITEMS + item) % (LINE * PIECE);
        const int i = ALONG ? line : near, l = ALONG ? near : line;
        copy_number(memory, base * (PIECE / 4) + (line * LINE + (near / PIECE ^ SWIZZLE(line))) * PIECE + near % PIECE,
                    x + i * across + l * step, i < rows && l < terms);
    }
}

/* Return the position of the row that an item passes to `ldmatrix`, in a tile with contiguous terms. */
static uint place_along(uint first, uint place, uint lane)
{
    const uint row = IS_LEFT ? lane % 16 : lane % 8 + lane / 16 * 8;
    return (first + row) * DEPTH + ((place * 2 + (IS_LEFT ? lane / 16 : lane / 8 % 2)) ^ SWIZZLED(row)) * 4;
}

/* The same for 16-bit numbers in a tile of contiguous rows, whose matrices the load instruction transposes. */
static uint place_transposed(uint first, uint place, uint lane)
{
    const uint row = IS_LEFT ? lane % 8 + lane / 16 * 8 : lane % 16;
    return row * (SIDE / 2) + ((first / 8 + place * 2 + (IS_LEFT ? lane / 8 % 2 : lane / 16)) ^ lane % 8) * 4;
}

/* Return the position of an item's rows in a tile of SIDE contiguous rows, or columns of the right matrix. An item loads
   NEAR_ROWS neighbours: one row for each eight rows of the warp, so fragments have rows in another order than in a tile
   with contiguous terms. */
static uint place_across(uint first, uint place, uint lane)
{
    const uint row = first + lane / 4 * NEAR_ROWS;
    return (lane % 4 * (SIDE / 4) + ((row / 4 + place) ^ EXCHANGED(lane))) * 4 + row % 4;
}

/* Load two or four neighbours, or half of eight neighbours, which are in two 16-byte pieces. */
static void load_near(MEMORY memory, uint base, const uint *at, uint *x, int half_of)
{
    if (NEAR_ROWS == 8)
        load_four(memory, base + at[half_of], x + 4 * half_of);
    else if (half_of && NEAR_ROWS == 4)
        load_four(memory, base + at[0], x);
    else if (half_of)
        load_two(memory, base + at[0], x);
}

/* Load fragments for eight words of terms: half of the rows, or all columns. */
static void load_A(MEMORY memory, uint base, uint l, const uint *at, uint (*x)[4], int half_of)
{
#if A_ACROSS
    UNROLLED(c, 2) {
        uint numbers[WARP_ROWS / 8];
        load_near_A(memory, base + (l + c * 4) * ROWS, at, numbers, half_of);
        UNROLLED(i, WARP_ROWS / 8)
            if (IN_HALF(i / 2, half_of))
                x[i / 2][i % 2 + 2 * c] = numbers[i];
    }
#else
    UNROLLED(i, WARP_ROWS / 16)
        if (IN_HALF(i, half_of)) {
            if (A_ALONG)
                load_matrices(memory, base + at[l / 8] + i * 16 * DEPTH, x[i]);
            else
                load_transposed(memory, base + at[i] + l * ROWS, x[i]);
        }
#endif
}

static void load_B(MEMORY memory, uint base, uint l, const uint *at, uint (*v)[2])
{
#if B_ACROSS
    UNROLLED(c, 2) {
        uint numbers[WARP_COLS / 8];
        load_near_B(memory, base + (l + c * 4) * COLS, at, numbers, 0);
        load_near_B(memory, base + (l + c * 4) * COLS, at, numbers, 1);
        UNROLLED(j, WARP_COLS / 8)
            v[j][c] = numbers[j];
    }
#else
    UNROLLED_RANGE(j, 0, WARP_COLS / 8, 2) {
        uint four[4];
        if (B_ALONG)
            load_matrices(memory, base + at[l / 8] + j * 8 * DEPTH, four);
        else
            load_transposed(memory, base + at[j / 2] + l * COLS, four);
        v[j][0] = four[0];
        v[j][1] = four[1];
        v[j + 1][0] = four[2];
        v[j + 1][1] = four[3];
    }
#endif
}

/* Return the part of a number that the instruction truncates, rounded. */
static uint rest_of(uint x)
{
    return as_uint((as_float(x) - as_float(x & 0xffffe000)) * ROUNDING);
}

/* Add the products of two sets of fragments, for half of the rows. The instruction truncates float32 numbers to TF32,
   so they are first rounded by a multiplication, which keeps exact TF32 numbers, or split into two TF32 numbers; products
   of two low parts are omitted. */
static void multiply(MEMORY memory, float (*acc)[WARP_COLS / 8][4], uint (*x)[4], uint (*v)[2], int half_of)
{
#if IS_SPLIT
    if (half_of == 0)
        return;
    uint v_small[WARP_COLS / 8][2];
    UNROLLED(j, WARP_COLS / 8) UNROLLED(c, 2) {
        v_small[j][c] = rest_of(v[j][c]);
    }
    UNROLLED(i, WARP_ROWS / 16) {
        uint x_small[4];
        UNROLLED(c, 4)
            x_small[c] = rest_of(x[i][c]);
        UNROLLED(j, WARP_COLS / 8)
            multiply_add(memory, acc[i][j], x_small, v[j]);
        UNROLLED(j, WARP_COLS / 8)
            multiply_add(memory, acc[i][j], x[i], v_small[j]);
        UNROLLED(j, WARP_COLS / 8)
            multiply_add(memory, acc[i][j], x[i], v[j]);
    }
#else
#if IS_ROUNDED
    UNROLLED(i, WARP_ROWS / 16) UNROLLED(c, 4)
        if (IN_HALF(i, half_of))
            x[i][c] = as_uint(as_float(x[i][c]) * ROUNDING);
    if (half_of == 0)
        UNROLLED(j, WARP_COLS / 8) UNROLLED(c, 2)
            v[j][c] = as_uint(as_float(v[j][c]) * ROUNDING);
#endif
    UNROLLED(i, WARP_ROWS / 16) UNROLLED(j, WARP_COLS / 8)
        if (IN_HALF(i, half_of))
            multiply_add(memory, acc[i][j], x[i], v[j]);
#endif
}

/* Statements that determine a group's tile, its matrices in the batch, and its part of the sums. */
void find_tile()
{
    const ga_ssize m = s.s0, n = s.s1, a_row = s.s4, a_step = s.s5, b_col = s.s7, b_step = s.s8;
    const ga_ssize y0 = t.s1, y1 = t.s2;
    const uint parts = t.s6;
    const bool add = s.sB;
    /* Tiles are ordered in bands, column by column, so that concurrent groups share cached rows and columns. There are
       fewer than 2**32 tiles, and 32-bit divisions are faster. */
    const uint tiles_m = (m + ROWS - 1) / ROWS, tiles_n = (n + COLS - 1) / COLS;
    const uint of_matrix = NUMBER % (tiles_m * tiles_n), matrix = NUMBER / (tiles_m * tiles_n);
    const uint band = of_matrix / (BAND * tiles_n) * BAND, in_band = of_matrix % (BAND * tiles_n);
    const uint height = min((uint)BAND, tiles_m - band);
    const ga_ssize i0 = (ga_ssize)(band + in_band % height) * ROWS, j0 = (ga_ssize)(in_band / height) * COLS;
    const ga_ssize batch = matrix / parts, part = matrix % parts;
    const ga_ssize l0 = part * t.s7, k = max(min(s.s2 - l0, (ga_ssize)t.s7), (ga_ssize)0);
    const int rows = (int)min((ga_ssize)ROWS, m - i0), cols = (int)min((ga_ssize)COLS, n - j0);
    a += batch * s.s3 + i0 * a_row + l0 * a_step;
    b += batch * s.s6 + j0 * b_col + l0 * b_step;
}
