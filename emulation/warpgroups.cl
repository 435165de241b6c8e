/* Emulates the instructions in optdb/codegen/gemm/warpgroups_ptx.cl, to test the kernels' indices and signals. */

/* Write the address, the lengths and the steps of a batch of matrices, and the length of a box along the outer axis. */
static void describe(__local uint *its_map, GLOBAL_MEM uint *map, GLOBAL_MEM const T *matrices, ga_ssize inner,
                     ga_ssize outer, ga_ssize count, ga_ssize outer_step, ga_ssize step, uint box)
{
    __local ulong *const fields = (__local ulong *)its_map;
    if (get_local_id(0) % 32)
        return;
    fields[0] = (ulong)matrices;
    fields[1] = inner;
    fields[2] = outer;
    fields[3] = count;
    fields[4] = outer_step;
    fields[5] = step;
    fields[6] = box;
}

/* A stage has counts of finished copies, of finished reads and of begun copies; the coordinates of the latest copy; and
   whether a device would wait forever, or would overwrite what other items read. */
static void begin_signals(__local ulong *signals, uint item)
{
    for (uint c = item; c < STAGES * SIGNAL_WORDS; c += ITEMS)
        signals[c] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
}

static void await_empty(__local ulong *signals, uint side, uint phase, bool copies)
{
    __local ulong *const own = signals + SIGNAL_WORDS * side;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (copies)
        own[8] |= own[1] % 2 == phase || own[1] < own[2];
}

static void copy_stage(__local uint *memory, GLOBAL_MEM const uint *maps, __local ulong *signals, uint side, int l,
                       int i, int j, int a_matrix, int b_matrix)
{
    __local ulong *const own = signals + SIGNAL_WORDS * side;
    own[2] += 1;
    own[3] = l;
    own[4] = i;
    own[5] = j;
    own[6] = a_matrix;
    own[7] = b_matrix;
}

/* The position of a word in a tile whose rows of 128 bytes are swizzled. */
static uint swizzled(uint word)
{
    return word ^ (word / 32 % 8) * 4;
}

/* Copy a box: rows of 128 bytes along the inner axis. Numbers are rounded to what is multiplied; those outside the
   matrix are zero. */
static void copy_box(__local uint *to, __local const uint *its_map, long inner, long outer, long matrix)
{
    __local const ulong *const fields = (__local const ulong *)its_map;
    GLOBAL_MEM const T *const from = (GLOBAL_MEM const T *)fields[0] + matrix * (long)fields[5] + inner;
    const long step = fields[4], rows = fields[6];
    const int numbers = matrix < (long)fields[3] ? clamp((long)fields[1] - inner, 0L, 32L * TERMS_OF_WORD) : 0;
    const long begun = min((long)fields[2] - outer, rows);
    for (uint c = get_local_id(0); c < rows * 32; c += ITEMS) {
        uint word = 0;
        for (int e = 0; e < TERMS_OF_WORD; ++e) {
            const int i = c % 32 * TERMS_OF_WORD + e;
            if (i < numbers && c / 32 < begun) {
                const T x = from[(outer + c / 32) * step + i];
                word |= (uint)ROUNDED_BITS(x) << e * 16;
            }
        }
        to[swizzled(c)] = word;
    }
}

/* Copy as late as a device may. If `phase` is not the current phase, a device does not wait. */
static void await_full(__local uint *memory, __local const uint *its_maps, __local ulong *signals, uint side, uint phase)
{
    __local ulong *const own = signals + SIGNAL_WORDS * side;
    __local uint *const to = memory + side * STAGE_WORDS;
    barrier(CLK_LOCAL_MEM_FENCE);
    const bool waits = own[0] % 2 == phase && own[0] < own[2] && !own[8];
    const long l = own[3], i = own[4], j = own[5];
    for (uint c = 0; waits && c < ROWS; c += A_ALONG ? ROWS : TERMS)
        copy_box(to + c * DEPTH, its_maps, A_ALONG ? l : i + c, A_ALONG ? i : l, own[6]);
    for (uint c = 0; waits && c < COLS; c += B_ALONG ? COLS : TERMS)
        copy_box(to + (ROWS + c) * DEPTH, its_maps + MAP_WORDS, B_ALONG ? l : j + c, B_ALONG ? j : l, own[7]);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (waits && get_local_id(0) == 0)
        own[0] += 1;
}

static void release_stage(__local ulong *signals, uint side, uint item)
{
    if (item == 0)
        signals[SIGNAL_WORDS * side + 1] += 1;
}

/* Return eight words of terms of a row, in a tile along the terms or across them, where each term has 16 bits. */
static uint8 words_of(__local const uint *memory, uint tile, bool along, uint row)
{
    if (along) {
        const uint at = swizzled(tile + row * DEPTH);
        return (uint8)(vload4(0, memory + at), vload4(0, memory + (at ^ 4)));
    }
    /* The tile begins at a multiple of eight rows of 64 numbers. */
    __local const ushort *const numbers = (__local const ushort *)(memory + tile + row / 64 * 64 * DEPTH);
    ushort found[16];
    UNROLLED(e, 16)
        found[e] = numbers[(row % 64 ^ e % 8 * 8) + e * 64];
    return as_uint8(vload16(0, found));
}

/* Multiply an item's two rows of words by its columns. */
static void multiply_rows(__local const uint *memory, float *c, uint8 top, uint8 bottom, uint right, uint adds)
{
    const uint lane = get_local_id(0) % 32;
    if (!adds)
        for (uint i = 0; i < COLS / 2; ++i)
            c[i] = 0;
    for (uint e = 0; e < 2; ++e)
        for (uint q = 0; q < COLS / 8; ++q) {
            const uint8 words = words_of(memory, right, B_ALONG, q * 8 + lane % 4 * 2 + e);
            c[q * 4 + e] += product_of_words(top, words);
            c[q * 4 + 2 + e] += product_of_words(bottom, words);
        }
}

static void multiply_pieces(__local uint *memory, float *c, uint left, uint right, uint adds)
{
    const uint item = get_local_id(0), row = item % 128 / 32 * 16 + item % 32 / 4;
    if (item < CONSUMERS)
        multiply_rows(memory, c, words_of(memory, left, A_ALONG, row), words_of(memory, left, A_ALONG, row + 8), right,
                      adds);
}

/* Return the word of another item of the same warp. */
static uint of_lane(__local uint *memory, uint lane, uint word)
{
    __local uint *const exchange = memory + STAGES * STAGE_WORDS;
    const uint item = get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    exchange[item] = word;
    barrier(CLK_LOCAL_MEM_FENCE);
    return exchange[item / 32 * 32 + lane];
}

/* Items exchange their fragments: 16 rows of eight words for each warp. */
static void multiply_loaded(__local uint *memory, float *c, const uint *x, uint right, uint adds)
{
    const uint item = get_local_id(0), row = item % 32 / 4;
    __local uint *const rows = memory + STAGES * STAGE_WORDS + item / 32 * 128;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = 0; e < 4; ++e)
        rows[(row + e % 2 * 8) * 8 + e / 2 * 4 + item % 4] = x[e];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < CONSUMERS)
        multiply_rows(memory, c, vload8(row, rows), vload8(row + 8, rows), right, adds);
}

/* All items take each step together: a copy, and the products of an earlier stage. */
void run_tiles()
{
    DESCRIBE_MATRICES
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint number = get_group_id(0); number < count; number += get_num_groups(0)) {
        BEGIN_TILE
        float acc[ROW_BLOCKS][COLS / 2];
        for (uint step = 0; step < stages + STAGES - 2; ++step) {
            if (step < stages) {
                const uint stage = step;
                FILL_STAGE
            }
            if (step >= STAGES - 2) {
                const uint stage = step - (STAGES - 2);
                MULTIPLY_STAGE
            }
        }
        STORE_TILE
    }
}
