/* The instructions of warpgroups.cl in PTX. Instructions that only compute capability 9.0a has are in comments that
   begin with //@, see runtime/build.py. */

/* Write the tensor map of a batch of matrices, by which an instruction copies a box of one matrix. Lengths and steps are
   in elements; elements along the inner axis are contiguous, and a box has 128 bytes of them. The items are a warp. */
static void describe(__local uint *its_map, GLOBAL_MEM uint *map, GLOBAL_MEM const T *matrices, ga_ssize inner,
                     ga_ssize outer, ga_ssize count, ga_ssize outer_step, ga_ssize step, uint box)
{
#define REPLACE(field, value) \
    asm volatile("//@ tensormap.replace.tile." field ", " value ";" : : "r"(at) : "memory")
#define REPLACE_32(field, value) \
    asm volatile("//@ tensormap.replace.tile." field ", %1;" : : "r"(at), "r"((uint)(value)) : "memory")
#define REPLACE_64(field, value) \
    asm volatile("//@ tensormap.replace.tile." field ", %1;" : : "r"(at), "l"((ulong)(value)) : "memory")
    const uint at = (uint)(ulong)its_map, lane = get_local_id(0) % 32;
    its_map[lane] = 0;
    asm volatile("bar.warp.sync 0xffffffff;" : : : "memory");
    if (lane == 0) {
        REPLACE_64("global_address.shared::cta.b1024.b64 [%0]", matrices);
        REPLACE("rank.shared::cta.b1024.b32 [%0]", "2");
        REPLACE_32("box_dim.shared::cta.b1024.b32 [%0], 0", 128 / sizeof(T));
        REPLACE_32("box_dim.shared::cta.b1024.b32 [%0], 1", box);
        REPLACE("box_dim.shared::cta.b1024.b32 [%0], 2", "1");
        REPLACE_32("global_dim.shared::cta.b1024.b32 [%0], 0", inner);
        REPLACE_32("global_dim.shared::cta.b1024.b32 [%0], 1", outer);
        REPLACE_32("global_dim.shared::cta.b1024.b32 [%0], 2", count);
        REPLACE_64("global_stride.shared::cta.b1024.b64 [%0], 0", outer_step * sizeof(T));
        REPLACE_64("global_stride.shared::cta.b1024.b64 [%0], 1", step * sizeof(T));
        REPLACE("element_stride.shared::cta.b1024.b32 [%0], 0", "1");
        REPLACE("element_stride.shared::cta.b1024.b32 [%0], 1", "1");
        REPLACE("element_stride.shared::cta.b1024.b32 [%0], 2", "1");
        REPLACE("elemtype.shared::cta.b1024.b32 [%0]", "ELEMENT_TYPE");
        REPLACE("interleave_layout.shared::cta.b1024.b32 [%0]", "0");
        REPLACE("swizzle_mode.shared::cta.b1024.b32 [%0]", "3");
        REPLACE("fill_mode.shared::cta.b1024.b32 [%0]", "0");
    }
    asm volatile("bar.warp.sync 0xffffffff;" : : : "memory");
    asm volatile("//@ tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
                 "[%0], [%1], 128;" : : "l"(map), "r"(at) : "memory");
    asm volatile("//@ fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" : : "l"(map) : "memory");
}

/* Initialize two signals per stage: one counts copies, the other one warps that have read the stage. */
static void begin_signals(uint signals, uint item)
{
    if (item < STAGES) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(signals + 16 * item) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                     : : "r"(signals + 16 * item + 8), "r"(CONSUMERS / 32) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
    barrier(CLK_LOCAL_MEM_FENCE);
}

static void await_signal(uint signal, uint phase)
{
    uint is_there = 0;
    while (!is_there)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_there) : "r"(signal), "r"(phase) : "memory");
}

static void await_empty(uint signals, uint side, uint phase, bool copies)
{
    await_signal(signals + 16 * side + 8, phase);
}

static void await_full(uint memory, __local const uint *its_maps, uint signals, uint side, uint phase)
{
    await_signal(signals + 16 * side, phase);
}

static void release_stage(uint signals, uint side, uint item)
{
    if (item % 32 == 0)
        asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }"
                     : : "r"(signals + 16 * side + 8) : "memory");
}

/* Start to copy a box, from coordinates along the inner axis, the outer axis and the batch. */
static void copy_box(uint to, GLOBAL_MEM const uint *map, int inner, int outer, int matrix, uint signal)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];"
                 : : "r"(to), "l"(map), "r"(inner), "r"(outer), "r"(matrix), "r"(signal) : "memory");
}

/* Start to copy a stage's tiles, from term `l`, row `i` and column `j`. */
static void copy_stage(uint memory, GLOBAL_MEM const uint *maps, uint signals, uint side, int l, int i, int j,
                       int a_matrix, int b_matrix)
{
    const uint signal = signals + 16 * side, to = memory + 4 * side * STAGE_WORDS;
    asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], STAGE_BYTES; }"
                 : : "r"(signal) : "memory");
    UNROLLED_RANGE(c, 0, ROWS, A_ALONG ? ROWS : TERMS)
        copy_box(to + 4 * c * DEPTH, maps, A_ALONG ? l : i + c, A_ALONG ? i : l, a_matrix, signal);
    UNROLLED_RANGE(c, 0, COLS, B_ALONG ? COLS : TERMS)
        copy_box(to + 4 * (ROWS + c) * DEPTH, maps + MAP_WORDS, B_ALONG ? l : j + c, B_ALONG ? j : l, b_matrix, signal);
}

/* Return the descriptor of a swizzled tile. Across the terms, blocks of 128 bytes are `DEPTH * TERMS` words apart. */
static ulong described(uint memory, uint word)
{
    const ulong apart = 4 * DEPTH * TERMS;
    return (ulong)(((memory + 4 * word) & 0x3ffff) >> 4) | apart >> 4 << 16 | (ulong)(1024 >> 4) << 32 | 1UL << 62;
}

/* Multiply 64 rows and COLS columns for 32 bytes of terms, and add the products to sums unless these are undefined. */
static void multiply_pieces(uint memory, float *c, uint left, uint right, uint adds)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %THIRD, 0;\n//@ INSTRUCTION {REGISTERS}, %LEFT, %RIGHT, p, FACTORS;\n}"
                 : CONSTRAINTS
                 : "l"(described(memory, left)), "l"(described(memory, right)), "r"(adds)
                 : "memory");
}

/* The same with an item's fragment of the left tile. */
static void multiply_loaded(uint memory, float *c, const uint *x, uint right, uint adds)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %SIXTH, 0;\n"
                 "//@ INSTRUCTION {REGISTERS}, {%LEFT, %RIGHT, %THIRD, %FOURTH}, %FIFTH, p, FACTORS;\n}"
                 : CONSTRAINTS
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(described(memory, right)), "r"(adds)
                 : "memory");
}

/* Return the word of another lane. */
static uint of_lane(uint memory, uint lane, uint word)
{
    uint other;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(other) : "r"(word), "r"(lane));
    return other;
}

/* One item copies, and the warpgroups multiply. They get the registers that the copying warpgroup does not need. */
void run_tiles()
{
    if (item >= CONSUMERS) {
        GIVE_REGISTERS
        DESCRIBE_MATRICES
        if (item < CONSUMERS + 64)
            asm volatile("bar.sync 1, 64;" : : : "memory");
        for (uint number = get_group_id(0); copies && number < count; number += get_num_groups(0)) {
            BEGIN_TILE
            for (uint stage = 0; stage < stages; ++stage) {
                FILL_STAGE
            }
        }
    } else {
        TAKE_REGISTERS
        for (uint number = get_group_id(0); number < count; number += get_num_groups(0)) {
            BEGIN_TILE
            float acc[ROW_BLOCKS][COLS / 2];
            for (uint stage = 0; stage < stages; ++stage) {
                MULTIPLY_STAGE
            }
            STORE_TILE
        }
    }
}
