/* Find the largest elements. LENGTHS and STEPS are parameters whose names end with the number of a kept axis (k) or of
a reduced axis (r). The elements of output o start at base; ROW and ROW_STEP belong to the last reduced axis. */
OUTLINED_KERNEL void largest(ga_size n, ga_size each, ga_size m, LENGTHS, ARRAY T *a, STEPS, ARRAY T *z,
    ARRAY ga_long *indices)
{
    const ga_size stop = min((get_global_id(0) + 1) * each, n);
    for (ga_size o = get_global_id(0) * each; o < stop; ++o) {
        ga_size rest = o;
        ga_ssize base = 0;
        ADD_BASE
        W largest = LOAD(a[base]);
        ga_ssize best = base;
        ga_size index = 0;
        for (ga_size i = 0; i < m;) {
            rest = i / ROW;
            ga_ssize p = base;
            ADD_ROW
            for (const ga_size end = i + ROW; i < end; ++i) {
                const W x = LOAD(a[p]);
                if (LARGER) {
                    largest = x;
                    best = p;
                    index = i;
                }
                p += ROW_STEP;
            }
        }
        z[o] = a[best];
        indices[o] = index;
    }
}

static inline bool less(C a, C b)
{
    return LESS;
}

OUTLINED_KERNEL void searchsorted(ga_size count, ga_size chunk, ga_size length, ARRAY T *x, ga_ssize step,
    ARRAY V *v, ARRAY ga_long *z)
{
    const ga_size stop = min((get_global_id(0) + 1) * chunk, count);
    for (ga_size i = get_global_id(0) * chunk; i < stop; ++i) {
        const C value = (C)LOAD_V(v[i]);
        ga_size low = 0, high = length;
        while (low < high) {
            const ga_size middle = low + (high - low) / 2;
            const C here = (C)LOAD(x[(ga_ssize)middle * step]);
            if (IS_BEFORE)
                low = middle + 1;
            else
                high = middle;
        }
        z[i] = low;
    }
}
