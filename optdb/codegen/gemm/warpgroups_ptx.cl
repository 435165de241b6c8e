/* The instructions of warpgroups.cl in PTX. Instructions that only compute capability 9.0a has are in comments that
   begin with //@, see runtime/build.py. */

/* Initialize the signals, each of which counts one stage's copies. */
static void begin_signals(uint signals, uint item)
{
    if (item < STAGES)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(signals + 8 * item) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
    barrier(CLK_LOCAL_MEM_FENCE);
}

static void expect_stage(uint signals, uint side)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], STAGE_BYTES; }"
                 : : "r"(signals + 8 * side) : "memory");
}

/* Start to copy one matrix's words of a stage. */
static void copy_stage(uint memory, uint word, GLOBAL_MEM const void *source, uint words, uint signals, uint side)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 : : "r"(memory + 4 * word), "l"(source), "r"(4 * words), "r"(signals + 8 * side) : "memory");
}

static void await_stage(uint memory, uint signals, uint side, uint phase)
{
    uint is_there = 0;
    while (!is_there)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_there) : "r"(signals + 8 * side), "r"(phase) : "memory");
}

static void begin_products()
{
    asm volatile("//@ wgmma.fence.sync.aligned;" : : : "memory");
}

/* Commit products, and wait for all others. */
static void await_earlier_products()
{
    asm volatile("//@ wgmma.commit_group.sync.aligned;" : : : "memory");
    asm volatile("//@ wgmma.wait_group.sync.aligned 1;" : : : "memory");
}

static void await_products()
{
    asm volatile("//@ wgmma.wait_group.sync.aligned 0;" : : : "memory");
}

/* Return the descriptor of a tile, in which neighbouring pieces of terms are `apart` bytes apart. */
static ulong described(uint memory, uint word, uint apart)
{
    return (ulong)(((memory + 4 * word) & 0x3ffff) >> 4) | (ulong)(apart >> 4) << 16 | (ulong)(128 >> 4) << 32;
}

/* Add the products of 64 rows and COLS columns for two pieces of terms. */
static void multiply_pieces(uint memory, float *c, uint left, uint right)
{
    asm volatile("//@ INSTRUCTION {REGISTERS}, %LEFT, %RIGHT, FACTORS;"
                 : CONSTRAINTS
                 : "l"(described(memory, left, ROWS * 16)), "l"(described(memory, right, COLS * 16))
                 : "memory");
}
