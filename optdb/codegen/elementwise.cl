/* Functions that read and write vectors of elements, each a step behind the other; only the first of them at the end. */

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
