/* What the instructions in warpgroup_ptx.cl do, for devices without them: tests check the kernels' indices by it. */

static uint opaque(uint x)
{
    return x;
}

static void share_unit()
{
}

static void store_four(__local uint *memory, uint word, float x0, float x1, float x2, float x3)
{
    *(__local float4 *)(memory + word) = (float4)(x0, x1, x2, x3);
}

static void publish_numbers()
{
}

static void await_products()
{
}

static void await_all_products(float *acc)
{
}

/* A number of a row: the device exchanges pieces of 16 bytes by the bits of the address that count lines of 128 bytes. */
static float number_at(__local const uint *memory, uint word, uint row, uint l)
{
    const uint linear = word + row * DEPTH + l;
    return as_float(memory[linear ^ (linear / 32 % (DEPTH / 4)) * 4] & 0xffffe000);
}

/* Adds the products of 64 rows, which the items exchange, and all columns of a stage. */
static void multiply_stage(__local uint *memory, float *acc, const float *left, uint right, int adds)
{
    __local float *exchange = (__local float *)(memory + STAGES * STAGE_WORDS);
    const uint item = get_local_id(0), lane = item % 32;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = 0; e < 8; ++e)
        exchange[item * 8 + e] = as_float(as_uint(left[e]) & 0xffffe000);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int c = 0; c < COLS / 2; ++c) {
        const uint col = c / 4 * 8 + lane % 4 * 2 + c % 2;
        if (!adds)
            acc[c] = 0;
        /* Fragment: by the step, the side of the terms and that of the rows; each of four items has a term. */
        for (uint l = 0; l < DEPTH; ++l)
            acc[c] += exchange[(item / 4 * 4 + l % 4) * 8 + l / 8 * 4 + l % 8 / 4 * 2 + c / 2 % 2]
                      * number_at(memory, right, col, l);
    }
}
