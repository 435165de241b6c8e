/* Kernels that compute arrays elementwise.

An item processes a chunk of the n elements. NUMBERS are n, chunk, and other numbers that the statements use; len are
the lengths of axes, ROW is the length of the last one, x_s are the strides of array x, and x_p is the offset of its
element i. */

/* Arrays with the same memory layout. */
OUTLINED_KERNEL void alike(NUMBERS, ARRAYS)
{
    const ga_size begin = get_global_id(0) * chunk;
    const ga_size end = min(begin + chunk, n);
    if (begin >= end)
        return;
    ONCE
    for (ga_size i = begin; i < end; ++i) {
        ELEMENT_ALIKE
    }
}

/* Process WIDTH elements of a row at a time: one, or a vector on CPUs. */
OUTLINED_KERNEL void strided(NUMBERS, LENGTHS, ARRAYS, STEPS)
{
    ga_size i = get_global_id(0) * chunk;
    const ga_size end = min(i + chunk, n);
    if (i >= end)
        return;
    ONCE
    while (i < end) {
        OFFSETS
        const ga_size stop = min(end, i + (ROW - column));
        for (; i < stop; i += WIDTH) {
            ELEMENT
            NEXT
        }
        i = stop;
    }
}

/* For GPUs: an item processes four neighbours in arrays of the same layout, aligned for reading four at once. */
KERNEL void quads(NUMBERS, ARRAYS)
{
    const ga_size i = get_global_id(0) * QUAD;
    if (i >= n)
        return;
    const int count = (int)min((ga_size)QUAD, n - i);
    ONCE
    READ_QUADS
    #pragma unroll
    for (int l = 0; l < QUAD; ++l) {
        ELEMENT_OF_QUADS
    }
    WRITE_QUADS
}

/* The same for arrays whose rows consist of groups of four, or are broadcast; indexes have 32 bits. */
KERNEL void row_quads(NUMBERS, NARROW_LENGTHS, ARRAYS, NARROW_STEPS)
{
    const uint i = (uint)get_global_id(0) * QUAD;
    if (i >= n)
        return;
    ONCE
    NARROW_OFFSETS
    READ_ROW_QUADS
    #pragma unroll
    for (int l = 0; l < QUAD; ++l) {
        ELEMENT_OF_QUADS
    }
    WRITE_ROW_QUADS
}

/* For GPUs: an item processes one element, with 32-bit indexes. */
KERNEL void narrow(NUMBERS, NARROW_LENGTHS, ARRAYS, NARROW_STEPS)
{
    const uint i = (uint)get_global_id(0);
    if (i >= n)
        return;
    ONCE
    NARROW_OFFSETS
    ELEMENT
}

/* Functions that read and write a vector of elements, `step` apart; `count` limits them at the end of a row. */
static inline VECTOR READ(const GLOBAL_MEM T *p, ga_ssize step, int count)
{
    if (step == 0)
        return (VECTOR)(LOAD(*p));
    if (step == 1 && count == WIDTH)
        return VLOAD(0, (const GLOBAL_MEM MEMORY *)p);
    union { VECTOR v; LANE s[WIDTH]; } lanes;
    lanes.v = (VECTOR)(0);
    for (int l = 0; l < count; ++l)
        lanes.s[l] = LOAD(p[l * step]);
    return lanes.v;
}

static inline void WRITE(VECTOR value, GLOBAL_MEM T *p, ga_ssize step, int count)
{
    if (step == 1 && count == WIDTH) {
        VSTORE(value, 0, (GLOBAL_MEM MEMORY *)p);
        return;
    }
    union { VECTOR v; LANE s[WIDTH]; } lanes;
    lanes.v = value;
    for (int l = 0; l < count; ++l)
        p[l * step] = STORE(lanes.s[l]);
}
