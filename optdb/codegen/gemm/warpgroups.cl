/* The kernels for products of packed matrices with warpgroup instructions, see warpgroups.py. */

/* Each item packs a 16-byte piece of one row's terms. Neighbouring items process neighbouring rows if these are closer
   in memory than terms, and otherwise neighbouring pieces. */
__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
KERNEL void PACK(long16 s, ARRAY T *x, ARRAY W *packed)
{
    const ga_ssize rows = s.s0, terms = s.s1, across = s.s3, step = s.s4, padded = s.s5, pieces = s.s6, length = s.s7;
    const uint item = get_local_id(0), along = abs(step) <= abs(across);
    const ga_ssize groups = (pieces + PIECES - 1) / PIECES, line = get_group_id(0) / groups;
    const ga_ssize piece = get_group_id(0) % groups * PIECES + (along ? item % PIECES : item / ROWS);
    const ga_ssize row = line * ROWS + (along ? item / PIECES : item % ROWS), i = row % padded;
    if (piece >= pieces || row >= s.s8)
        return;
    x += row / padded * s.s2 + i * across + piece * PIECE * step;
    const ga_ssize left = i < rows ? clamp(terms - piece * PIECE, (ga_ssize)0, (ga_ssize)PIECE) : 0;
    uint words[4] = {0, 0, 0, 0};
    if (step == 1 && left == PIECE && (ulong)x % 16 == 0)
        vstore4(*(GLOBAL_MEM const uint4 *)x, 0, words);
    else
        for (int e = 0; e < left; ++e)
            words[e * 4 / PIECE] |= (uint)BITS << e % (PIECE / 4) * 16;
    ROUND_WORDS
    *((GLOBAL_MEM uint4 *)packed + (row / length * pieces + piece) * length + row % length) = vload4(0, words);
}

void round_to_tf32()
{
    UNROLLED(c, 4)
        words[c] = as_uint(as_float(words[c]) * ROUNDING) & 0xffffe000;
}

__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
KERNEL void MATMUL(long16 s, long16 t, W alpha, W beta, ARRAY W *a, ARRAY W *b, ARRAY T *y, ARRAY T *z)
{
    __local uint its_tiles[STAGES * STAGE_WORDS] __attribute__((aligned(128)));
    __local ulong its_signals[STAGES * SIGNAL_WORDS];
    const MEMORY memory = (MEMORY)ADDRESS_OF(its_tiles);
    const SIGNALS signals = (SIGNALS)ADDRESS_OF(its_signals);
    FIND_TILE
    const ga_ssize z0 = t.s4, z1 = t.s5;
    const uint item = get_local_id(0), group = item / 128, warp = item % 128 / 32, lane = item % 32;
    float acc[ROW_BLOCKS][COLS / 2];
    UNROLLED(q, ROW_BLOCKS) UNROLLED(i, COLS / 2)
        acc[q][i] = 0;

    /* One item starts all copies, some stages ahead. */
#define COPY(side) { \
        expect_stage(signals, side); \
        copy_stage(memory, (side) * STAGE_WORDS, a, ROWS * DEPTH, signals, side); \
        copy_stage(memory, (side) * STAGE_WORDS + ROWS * DEPTH, b, COLS * DEPTH, signals, side); \
        a += ROWS * DEPTH; \
        b += COLS * DEPTH; \
    }
    const uint stages = (uint)((k + TERMS - 1) / TERMS);
    begin_signals(signals, item);
    if (item == 0)
        for (uint stage = 0; stage < min(stages, (uint)STAGES - 1); ++stage)
            COPY(stage)
    uint side = 0, last = STAGES - 1, phase = 0;
    for (uint stage = 0; stage < stages; ++stage) {
        await_stage(memory, signals, side, phase);
        begin_products();
        UNROLLED(step, DEPTH / 8) UNROLLED(q, ROW_BLOCKS)
            multiply_pieces(memory, acc[q],
                            side * STAGE_WORDS + step * (8 * ROWS) + (group * ROW_BLOCKS + q) * 256,
                            side * STAGE_WORDS + ROWS * DEPTH + step * (8 * COLS));
        /* The previous stage can be overwritten once all items have finished it. */
        await_earlier_products();
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item == 0 && stage + STAGES - 1 < stages)
            COPY(last)
        last = side;
        side = side == STAGES - 1 ? 0 : side + 1;
        phase ^= side == 0;
    }
    await_products();

    y += batch * t.s0 + i0 * y0 + j0 * y1;
    z += batch * t.s3 + i0 * z0 + j0 * z1;
    UNROLLED(q, ROW_BLOCKS) UNROLLED_RANGE(i, 0, COLS / 2, 2) {
        const int ti = (group * ROW_BLOCKS + q) * 64 + warp * 16 + lane / 4 + i / 2 % 2 * 8;
        const int tj = i / 4 * 8 + lane % 4 * 2;
        if (ti >= rows || tj >= cols)
            continue;
        STORE_PAIR
    }
}

/* Store two neighbours in a row if both are in the result. */
void store_pair()
{
    const bool both = tj + 1 < cols;
    W u = acc[q][i] * alpha, v = acc[q][i + 1] * alpha;
    if (add) {
        u += beta * LOAD(y[ti * y0 + tj * y1]);
        if (both)
            v += beta * LOAD(y[ti * y0 + (tj + 1) * y1]);
    }
    GLOBAL_MEM T *const to = z + ti * z0 + tj * z1;
    if (both && z1 == 1 && (ulong)to % sizeof(PAIR) == 0) {
        *(GLOBAL_MEM PAIR *)to = PAIR_OF_SUMS;
        continue;
    }
    *to = STORE(u);
    if (both)
        to[z1] = STORE(v);
}
