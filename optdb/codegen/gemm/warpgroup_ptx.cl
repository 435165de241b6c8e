/* The instructions of a warpgroup, in PTX, see warpgroup_kernels.py. Those that OpenCL C's compiler does not know stand
   in comments, see runtime/marked_ptx.py. */

static uint opaque(uint x)
{
    asm volatile("" : "+r"(x));
    return x;
}

static void store_four(uint memory, uint word, float x0, float x1, float x2, float x3)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
                 : : "r"(memory + 4 * word), "f"(x0), "f"(x1), "f"(x2), "f"(x3) : "memory");
}

/* Takes so few registers that groups share a unit. */
static void share_unit()
{
    asm volatile("DIRECTIVE_MARK .maxnreg REGISTERS");
}

/* Shows the tensor cores what the item stored. */
static void publish_numbers()
{
    asm volatile("MARK fence.proxy.async.shared::cta;" : : : "memory");
}

/* Waits for all products but those of the latest stages. */
static void await_products()
{
    asm volatile("MARK wgmma.wait_group.sync.aligned PENDING;" : : : "memory");
}

static void await_all_products(float *acc)
{
    asm volatile("MARK wgmma.wait_group.sync.aligned 0;" : ACCUMULATORS : : "memory");
}

/* Says where rows of terms begin, a line of 8 of them after another. */
static ulong descriptor(uint address)
{
    return DESCRIPTOR | (address & 0x3ffff) >> 4;
}

/* Begins to multiply 64 rows and all columns of a stage, and to add the products to sums, or to none. */
static void multiply_stage(uint memory, float *acc, const float *left, uint right, int adds)
{
    asm volatile(MULTIPLICATIONS
                 : ACCUMULATORS
                 : LEFT_NUMBERS, "l"(descriptor(memory + 4 * right)), "r"(adds)
                 : "memory");
}
