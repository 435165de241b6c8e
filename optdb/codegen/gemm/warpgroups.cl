/* The kernels for products with warpgroup instructions, see warpgroups.py. */

/* A group copies 32 words of terms of each of LINES rows, so that each row's terms are contiguous in the copy.
   Neighbouring items read neighbouring rows if these are closer in memory than terms. */
__attribute__((reqd_work_group_size(256, 1, 1)))
KERNEL void PACK(long16 s, ARRAY T *x, ARRAY W *packed)
{
    __local uint block[LINES][33];
    const ga_ssize rows = s.s0, terms = s.s1, across = s.s3, step = s.s4, words = s.s5;
    const uint near = get_local_id(0) % 32, far = get_local_id(0) / 32, along = abs(step) <= abs(across);
    const ga_ssize blocks = (words + 31) / 32;
    const ga_ssize line = get_group_id(0) / blocks * LINES, word = get_group_id(0) % blocks * 32;
    uint bits[LINES / 8];
    UNROLLED(r, LINES / 8) {
        const uint i = along ? far + r * 8 : near + r / 4 * 32, l = along ? near : far + r % 4 * 8;
        const ga_ssize matrix = (line + i) / rows, first = (word + l) * TERMS_OF_WORD;
        GLOBAL_MEM const T *const from = x + matrix * s.s2 + (line + i - matrix * rows) * across + first * step;
        bits[r] = 0;
        UNROLLED(e, TERMS_OF_WORD)
            if (line + i < s.s6 && first + e < terms)
                bits[r] |= (uint)BITS(from[e * step]) << e * 16;
    }
    UNROLLED(r, LINES / 8)
        block[along ? far + r * 8 : near + r / 4 * 32][along ? near : far + r % 4 * 8] = bits[r];
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLLED_RANGE(r, 0, LINES, 8)
        if (line + far + r < s.s6 && word + near < words)
            ((GLOBAL_MEM uint *)packed)[(line + far + r) * words + word + near] = block[far + r][near];
}

__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
KERNEL void MATMUL(long16 s, long16 t, W alpha, W beta, ARRAY T *left, ARRAY T *right, ARRAY T *y_of_all,
                   ARRAY T *z_of_all, ARRAY W *w, ARRAY uint *maps)
{
    __local uint its_tiles[STAGES * STAGE_WORDS + EXCHANGED_WORDS] __attribute__((aligned(1024)));
    __local uint its_maps[2 * MAP_WORDS] __attribute__((aligned(128)));
    __local ulong its_signals[STAGES * SIGNAL_WORDS];
    const MEMORY memory = (MEMORY)ADDRESS_OF(its_tiles);
    const SIGNALS signals = (SIGNALS)ADDRESS_OF(its_signals);
    const uint item = get_local_id(0), group = item / 128, warp = item % 128 / 32, lane = item % 32;
    const bool copies = item == CONSUMERS;
    /* All pieces were aligned when this kernel was chosen, but matrices bound later may not be: that is slow. */
    const bool are_aligned = (ulong)left % 16 == 0 && (ulong)right % 16 == 0;
    maps += get_group_id(0) * 2 * MAP_WORDS;
    const uint count = (uint)((s.s0 + ROWS - 1) / ROWS) * (uint)((s.s1 + COLS - 1) / COLS) * (uint)t.s6 * (uint)t.s8;
    if (!are_aligned) {
        for (uint number = get_group_id(0); number < count; number += get_num_groups(0)) {
            BEGIN_TILE
            #pragma unroll 1
            for (int e = item; e < ROWS * COLS; e += ITEMS) {
                const int ti = e / COLS, tj = e % COLS;
                if (ti >= rows || tj >= cols)
                    continue;
                W sum = 0;
                #pragma unroll 1
                for (ga_ssize l = 0; l < k; ++l)
                    sum += LOAD(a[ti * a_row + l * a_step]) * LOAD(b[tj * b_col + l * b_step]);
                if (parts > 1) {
                    sums[(i0 + ti) * n + j0 + tj] = sum;
                    continue;
                }
                sum *= alpha;
                if (add)
                    sum += beta * LOAD(y[(i0 + ti) * y0 + (j0 + tj) * y1]);
                z[(i0 + ti) * z0 + (j0 + tj) * z1] = STORE(sum);
            }
        }
        return;
    }
    begin_signals(signals, item);
    uint side = 0, phase = 0, filled_side = 0, filled_phase = 0, last = 0;
    RUN_TILES
}

/* Statements that determine a tile: its matrices, and its part of the sums. */
void begin_tile()
{
        GLOBAL_MEM const T *a = left, *b = right;
        FIND_TILE
        const uint stages = (uint)((k + TERMS - 1) / TERMS);
        GLOBAL_MEM const T *const y = y_of_all + batch * t.s0;
        GLOBAL_MEM T *const z = z_of_all + batch * t.s3;
        GLOBAL_MEM W *const sums = w + (part * t.s8 + batch) * m * n;
        const ga_ssize z0 = t.s4, z1 = t.s5;
}

/* Statements that store a tile's results, once all its products are complete. Each item has two rows of each 64, and two
   neighbours of each 8 columns. Four items exchange these, so that each has 16 bytes of a row. */
void store_tile()
{
#if !IS_LOADED
            WGMMA("wait_group", " 0");
            release_stage(signals, last, item);
#endif
            const bool to_sums = parts > 1;
            const bool is_aligned = z1 == 1 && (ulong)z % 16 == 0 && z0 * sizeof(T) % 16 == 0;
            const bool is_wide = cols == COLS && (to_sums ? n % 4 == 0 : is_aligned && !add);
#define WORDS(a, b, c, d) uint w0 = a, w1 = b, w2 = c, w3 = d;
#define SCALED(x) as_uint(alpha * x)
            STORED(q, 0, ROW_BLOCKS, 1) STORED(r, 0, 2, 1) {
                const int ti = (group * ROW_BLOCKS + q) * 64 + warp * 16 + lane / 4 + r * 8;
                const ga_ssize i = i0 + ti;
                const float *const x = acc[q] + 2 * r;
                GLOBAL_MEM T *const to = z + i * z0 + j0 * z1;
                GLOBAL_MEM W *const sum = sums + i * n + j0;
                if (is_wide && to_sums) {
                    STORE_SUMS
                } else if (is_wide) {
                    STORE_RESULTS
                } else if (cols == COLS && !to_sums && !add && ti < rows) {
                    GLOBAL_MEM T *at = to + lane % 4 * 2 * z1;
                    UNROLLED_RANGE(c, 0, COLS, 8) {
                        at[0] = STORE(alpha * x[c / 2]);
                        at[z1] = STORE(alpha * x[c / 2 + 1]);
                        at += 8 * z1;
                    }
                } else if (ti < rows) {
                    UNROLLED_RANGE(c, 0, COLS, 8) UNROLLED(e, 2) {
                        const int tj = c + lane % 4 * 2 + e;
                        W result = x[c / 2 + e];
                        if (tj >= cols)
                            continue;
                        if (to_sums) {
                            sum[tj] = result;
                            continue;
                        }
                        result *= alpha;
                        if (add)
                            result += beta * LOAD(y[i * y0 + (j0 + tj) * y1]);
                        to[tj * z1] = STORE(result);
                    }
                }
            }
}

/* Store a row's parts of sums, or its float32 results. */
void store_words()
{
                    STORED(c, 0, COLS, 16) {
                        WORDS(BITS(x[c / 2]), BITS(x[c / 2 + 1]), BITS(x[c / 2 + 4]), BITS(x[c / 2 + 5]))
                        exchange(memory, lane, 1, &w0, &w2);
                        exchange(memory, lane, 1, &w1, &w3);
                        if (ti < rows)
                            *(GLOBAL_MEM uint4 *)(TO + c + lane % 2 * 8 + lane / 2 % 2 * 4) = (uint4)(w0, w1, w2, w3);
                    }
}

/* Store a row's float16 results. */
void store_halves()
{
#define TWO(at) (ga_float2half(alpha * x[at]).bits | (uint)ga_float2half(alpha * x[at + 1]).bits << 16)
                    STORED(c, 0, COLS, 32) {
                        WORDS(TWO(c / 2), TWO(c / 2 + 4), TWO(c / 2 + 8), TWO(c / 2 + 12))
                        exchange(memory, lane, 1, &w0, &w1);
                        exchange(memory, lane, 1, &w2, &w3);
                        exchange(memory, lane, 2, &w0, &w2);
                        exchange(memory, lane, 2, &w1, &w3);
                        if (ti < rows)
                            *(GLOBAL_MEM uint4 *)(to + c + lane % 4 * 8) = (uint4)(w0, w1, w2, w3);
                    }
}

/* Statements by which two warps describe the matrices. */
void describe_matrices()
{
        if (item / 32 == CONSUMERS / 32)
            describe(its_maps, maps, left, A_ALONG ? s.s2 : s.s0, A_ALONG ? s.s0 : s.s2, s.s3 ? t.s8 : 1,
                     A_ALONG ? s.s4 : s.s5, s.s3, A_ALONG ? ROWS : TERMS);
        if (item / 32 == CONSUMERS / 32 + 1)
            describe(its_maps + MAP_WORDS, maps + MAP_WORDS, right, B_ALONG ? s.s2 : s.s1, B_ALONG ? s.s1 : s.s2,
                     s.s6 ? t.s8 : 1, B_ALONG ? s.s7 : s.s8, s.s6, B_ALONG ? COLS : TERMS);
}

/* Start to copy a stage's tiles into memory that all items have read. */
void fill_stage()
{
            await_empty(signals, filled_side, filled_phase ^ 1, copies);
            if (copies)
                copy_stage(memory, maps, signals, filled_side, (int)l0 + (int)stage * TERMS, (int)i0, (int)j0,
                           s.s3 ? (int)batch : 0, s.s6 ? (int)batch : 0);
            filled_side = filled_side == STAGES - 1 ? 0 : filled_side + 1;
            filled_phase ^= filled_side == 0;
}

/* Multiply a stage's tiles. In TF32, the instruction cannot read a left tile across the terms, so items load fragments
   of it. Odd lanes load the later terms first, so that the lanes of a warp read 32 different banks at a time. */
void multiply_stage()
{
            await_full(memory, its_maps, signals, side, phase);
#if IS_LOADED
            uint x[ROW_BLOCKS][4][4];
            const uint odd = lane % 2, term = lane % 4 ^ odd * 4, near = warp % 2 * 16 + lane / 4;
            const uint first = term * DEPTH + (near / 4 ^ term) * 4 + near % 4;
            UNROLLED(q, ROW_BLOCKS) UNROLLED(step, 4) {
                const uint row = (min(group, WARPGROUPS - 1u) * ROW_BLOCKS + q) * 64 + warp / 2 * 32;
                __local const uint *const from = its_tiles + side * STAGE_WORDS + (row + step * 8) * DEPTH;
                UNROLLED(r, 2) {
                    const uint now = from[first ^ r * 8], then = from[first ^ r * 8 ^ 144];
                    x[q][step][r] = odd ? then : now;
                    x[q][step][r + 2] = odd ? now : then;
                }
            }
            WGMMA("fence", "");
            UNROLLED(step, 4) UNROLLED(q, ROW_BLOCKS)
                multiply_loaded(memory, acc[q], x[q][step], side * STAGE_WORDS + ROWS * DEPTH + B_AT(step),
                                stage + step);
            WGMMA("commit_group", "");
            WGMMA("wait_group", " 1");
            WGMMA("wait_group", " 0");
            release_stage(signals, side, item);
#else
            WGMMA("fence", "");
            UNROLLED(step, 4) UNROLLED(q, ROW_BLOCKS)
                multiply_pieces(memory, acc[q], side * STAGE_WORDS + A_AT(group * ROW_BLOCKS + q, step),
                                side * STAGE_WORDS + ROWS * DEPTH + B_AT(step), stage + step);
            WGMMA("commit_group", "");
            /* The previous stage's memory can be overwritten once its products are complete. */
            WGMMA("wait_group", " 1");
            if (stage > 0)
                release_stage(signals, last, item);
            last = side;
#endif
            side = side == STAGES - 1 ? 0 : side + 1;
            phase ^= side == 0;
}

/* Exchange one of two words with a lane whose number differs in one bit: both lanes get both words of one of them. */
static void exchange(MEMORY memory, uint lane, uint bit_of_lane, uint *low, uint *high)
{
    const bool is_high = lane & bit_of_lane;
    const uint other = of_lane(memory, lane ^ bit_of_lane, is_high ? *low : *high);
    if (is_high)
        *low = other;
    else
        *high = other;
}
