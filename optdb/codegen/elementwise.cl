/* Kernels that process n points row by row; `column` is the index along the last axis. ONCE runs before the first point,
and POINTS processes WIDTH points of a row from i on. In elementwise kernels, len are the lengths of axes, x_s are the
strides of array x, and x_p is the offset of its element i. */

/* An item processes a chunk of the points. STOP is the end of the row or of the chunk. */
OUTLINED_KERNEL void chunked(PARAMS)
{
    ga_size i = get_global_id(0) * chunk;
    const ga_size end = min(i + chunk, n);
    if (i >= end)
        return;
    ONCE
    while (i < end) {
        OFFSETS
        const ga_size stop = STOP;
        for (; i < stop; i += WIDTH) {
            POINTS
            NEXT
        }
        i = stop;
    }
    FINISH
}

/* For GPUs: an item processes EACH neighbours. */
KERNEL void neighbours(PARAMS)
{
    const INDEX i = (INDEX)get_global_id(0) * EACH;
    if (i >= n)
        return;
    ONCE
    POINTS
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
