/* Emulates the instructions in optdb/codegen/gemm/tensor_cores_ptx.cl, to test the kernels' indices. */

static void copy_async16(__local uint *memory, uint word, GLOBAL_MEM const void *source, int bytes)
{
    for (int c = 0; c < 4; ++c)
        memory[word + c] = 4 * c < bytes ? ((GLOBAL_MEM const uint *)source)[c] : 0;
}

static void copy_async_all(__local uint *memory, uint word, GLOBAL_MEM const void *source)
{
    copy_async16(memory, word, source, 16);
}

static void copy_number_float32(__local uint *memory, uint number, GLOBAL_MEM const void *source, bool exists)
{
    memory[number] = exists ? *(GLOBAL_MEM const uint *)source : 0;
}

static void copy_number_all(__local uint *memory, uint number, GLOBAL_MEM const void *source)
{
    copy_number_float32(memory, number, source, true);
}

static void copy_number_float16(__local uint *memory, uint number, GLOBAL_MEM const void *source, bool exists)
{
    ((__local ushort *)memory)[number] = exists ? *(GLOBAL_MEM const ushort *)source : 0;
}

static void commit_copies()
{
}

static void await_copies()
{
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Each item passes the position of a row of four words, and receives one word from each of four 8-row matrices. */
static void load_matrices(__local uint *memory, uint word, uint *x)
{
    __local uint *exchange = memory + TILE_WORDS;
    const int item = get_local_id(0), first = item / 32 * 32, lane = item % 32;
    barrier(CLK_LOCAL_MEM_FENCE);
    exchange[item] = word;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int matrix = 0; matrix < 4; ++matrix)
        x[matrix] = memory[exchange[first + matrix * 8 + lane / 4] + lane % 4];
}

/* The same with transposed matrices of 16-bit numbers. */
static void load_transposed(__local uint *memory, uint word, uint *x)
{
    __local uint *exchange = memory + TILE_WORDS;
    const int item = get_local_id(0), first = item / 32 * 32, lane = item % 32;
    barrier(CLK_LOCAL_MEM_FENCE);
    exchange[item] = word;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int matrix = 0; matrix < 4; ++matrix) {
        x[matrix] = 0;
        for (int half_of_word = 0; half_of_word < 2; ++half_of_word) {
            const int row = lane % 4 * 2 + half_of_word, col = lane / 4;
            const uint pair = memory[exchange[first + matrix * 8 + row] + col / 2];
            x[matrix] |= (pair >> col % 2 * 16 & 0xffff) << half_of_word * 16;
        }
    }
}

static void load_two(__local uint *memory, uint word, uint *x)
{
    vstore2(*(__local const uint2 *)(memory + word), 0, x);
}

static void load_four(__local uint *memory, uint word, uint *x)
{
    vstore4(*(__local const uint4 *)(memory + word), 0, x);
}

static uint opaque(uint x)
{
    return x;
}

/* Add products of fragments, which the items exchange: 16 rows and 8 columns of eight words. */
static void multiply_add(__local uint *memory, float *c, const uint *x, const uint *v)
{
    const uint item = get_local_id(0), g = item % 32 / 4, r = item % 4;
    __local uint *const rows = memory + TILE_WORDS + item / 32 * 192, *const cols = rows + 128;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint part = 0; part < 4; ++part)
        rows[(g + part % 2 * 8) * 8 + part / 2 * 4 + r] = x[part];
    for (uint part = 0; part < 2; ++part)
        cols[g * 8 + part * 4 + r] = v[part];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint number = 0; number < 4; ++number)
        c[number] += product_of_words(vload8(g + number / 2 * 8, rows), vload8(2 * r + number % 2, cols));
}
