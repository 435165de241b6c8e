/* Emulates the instructions in warpgroups_ptx.cl on devices without them, to test the kernels' indices. */

/* A signal has a count of finished phases, and the sources of the next phase's two copies. */
static void begin_signals(__local ulong *signals, uint item)
{
    if (item < STAGES)
        signals[3 * item] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
}

static void expect_stage(__local ulong *signals, uint side)
{
}

static void copy_stage(__local uint *memory, uint word, GLOBAL_MEM const void *source, uint words,
                       __local ulong *signals, uint side)
{
    signals[3 * side + (word % STAGE_WORDS ? 2 : 1)] = (ulong)source;
}

/* Copy as late as a device may. If `phase` is not the current phase, a device does not wait. */
static void await_stage(__local uint *memory, __local ulong *signals, uint side, uint phase)
{
    const bool waits = signals[3 * side] % 2 == phase;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (waits)
        for (uint c = get_local_id(0); c < STAGE_WORDS; c += ITEMS) {
            GLOBAL_MEM const uint *a = (GLOBAL_MEM const uint *)signals[3 * side + 1];
            GLOBAL_MEM const uint *b = (GLOBAL_MEM const uint *)signals[3 * side + 2];
            memory[side * STAGE_WORDS + c] = c < ROWS * DEPTH ? a[c] : b[c - ROWS * DEPTH];
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (waits && get_local_id(0) == 0)
        signals[3 * side] += 1;
}

static void begin_products()
{
}

static void await_earlier_products()
{
}

static void await_products()
{
}

static void multiply_pieces(__local uint *memory, float *c, uint left, uint right)
{
    const uint item = get_local_id(0) % 128, warp = item / 32, lane = item % 32;
    for (uint i = 0; i < COLS / 2; ++i) {
        const uint row = warp * 16 + lane / 4 + i / 2 % 2 * 8, col = i / 4 * 8 + lane % 4 * 2 + i % 2;
        for (uint l = 0; l < 8; ++l)
            c[i] += product_of_words(memory[left + l / 4 * ROWS * 4 + row * 4 + l % 4],
                                     memory[right + l / 4 * COLS * 4 + col * 4 + l % 4]);
    }
}
