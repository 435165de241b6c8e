/* NVIDIA's tensor core instructions, and the instructions that load their operands, in PTX; see tensor_cores.py. */

static void copy_async16(uint memory, uint word, GLOBAL_MEM const void *source, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 : : "r"(memory + 4 * word), "l"(source), "r"(bytes) : "memory");
}

static void copy_async_all(uint memory, uint word, GLOBAL_MEM const void *source)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(memory + 4 * word), "l"(source) : "memory");
}

/* Copy a float32 number, or zero. */
static void copy_number_float32(uint memory, uint number, GLOBAL_MEM const void *source, bool exists)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 : : "r"(memory + 4 * number), "l"(source), "r"(exists ? 4 : 0) : "memory");
}

static void copy_number_all(uint memory, uint number, GLOBAL_MEM const void *source)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" : : "r"(memory + 4 * number), "l"(source) : "memory");
}

/* The same for float16, but synchronously: asynchronous copies have at least four bytes. */
static void copy_number_float16(uint memory, uint number, GLOBAL_MEM const void *source, bool exists)
{
    const ushort bits = exists ? *(GLOBAL_MEM const ushort *)source : 0;
    asm volatile("st.shared.u16 [%0], %1;" : : "r"(memory + 2 * number), "h"(bits) : "memory");
}

static void commit_copies()
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Wait for all copies except those for the latest stages. */
static void await_copies()
{
    asm volatile("cp.async.wait_group PENDING;" : : : "memory");
    barrier(CLK_LOCAL_MEM_FENCE);
}

static void load_matrices(uint memory, uint word, uint *x)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(memory + 4 * word) : "memory");
}

static void load_transposed(uint memory, uint word, uint *x)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(memory + 4 * word) : "memory");
}

static void load_two(uint memory, uint word, uint *x)
{
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(memory + 4 * word) : "memory");
}

static void load_four(uint memory, uint word, uint *x)
{
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(memory + 4 * word) : "memory");
}

static uint opaque(uint x)
{
    asm volatile("" : "+r"(x));
    return x;
}

static void multiply_add(uint memory, float *c, const uint *x, const uint *v)
{
    asm volatile("mma.sync.aligned.FRAGMENTS {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(v[0]), "r"(v[1]));
}
