/* Kernels that go over the elements of arrays, each of those at the same place.

An item takes a chunk of the n elements. NUMBERS are n, chunk, and what else the statements use; len are the lengths of
axes, ROW that of the last one, and x_s the steps of array x, of which element i is at x_p. */

/* Arrays that lie alike. */
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

/* WIDTH elements of a row at a time: one, or, for processors, a vector. */
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

/* For other devices: four neighbours of arrays that lie alike, and begin where four elements can be read at once. */
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

/* The same of arrays whose rows consist of such fours, or which are broadcast along them; indexes have 32 bits. */
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

/* For other devices: an element of arrays whose places are worked out in 32 bits. */
KERNEL void narrow(NUMBERS, NARROW_LENGTHS, ARRAYS, NARROW_STEPS)
{
    const uint i = (uint)get_global_id(0);
    if (i >= n)
        return;
    ONCE
    NARROW_OFFSETS
    ELEMENT
}

/* Functions that read and write vectors of elements, a step apart; at the end, only the first elements. */
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
