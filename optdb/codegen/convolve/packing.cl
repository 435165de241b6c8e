/* Kernels that pack arrays, see packing.py. */

/* PoCL's vstore_half assumes vector alignment, and crashes the process if the address is not aligned. */
static inline VECTOR load_halves(int at, const GLOBAL_MEM T *p)
{
    W lanes[WIDTH];
    for (int i = 0; i < WIDTH; ++i)
        lanes[i] = LOAD(p[at * WIDTH + i]);
    return VLOAD(0, lanes);
}

static inline void store_halves(VECTOR v, int at, GLOBAL_MEM T *p)
{
    W lanes[WIDTH];
    VSTORE(v, 0, lanes);
    for (int i = 0; i < WIDTH; ++i)
        p[at * WIDTH + i] = STORE(lanes[i]);
}

OUTLINED_KERNEL void pack_images(ga_size lines, ga_size chunk, ga_size channels, ga_size pieces0, ga_size pieces1,
    ga_size pieces2, ga_size extent0, ga_size extent1, ga_size extent2, ga_ssize length0, ga_ssize length1,
    ga_ssize length2, ga_ssize step0, ga_ssize step1, ga_ssize step2, ARRAY ga_long *shifts, ARRAY T *x,
    ga_ssize x_image, ga_ssize x_channel, ga_ssize x0, ga_ssize x1, ga_ssize x2, ARRAY W *y)
{
#if ON_CPU
    const ga_size first = get_global_id(0) * chunk, last = min(first + chunk, lines), by_line = 1;
#else
    const ga_ssize q = get_global_id(0);
    const ga_size first = get_global_id(1), last = lines, by_line = get_global_size(1);
#endif
    ga_ssize q0 = 0, q1 = extent1, i0 = 0, from = 0;
    ga_size piece1 = 0;
    const GLOBAL_MEM T *channel = x;
    for (ga_size line = first; line < last; line += by_line) {
        q1 += by_line;
        if (by_line > 1 || line == first || q1 >= (ga_ssize)extent1) { /* not for each line, since divisions are slow */
            ga_size rest = line;
            q1 = rest % extent1; rest /= extent1;
            q0 = rest % extent0; rest /= extent0;
            from = shifts[pieces0 + pieces1 + rest % pieces2]; rest /= pieces2;
            piece1 = rest % pieces1; rest /= pieces1;
            i0 = q0 * step0 + shifts[rest % pieces0]; rest /= pieces0;
            channel = x + (ga_ssize)(rest / channels) * x_image + (ga_ssize)(rest % channels) * x_channel;
        }
        const ga_ssize i1 = q1 * step1 + shifts[pieces0 + piece1];
        const int inside = i0 >= 0 && i0 < length0 && i1 >= 0 && i1 < length1;
        const GLOBAL_MEM T *row = inside ? channel + i0 * x0 + i1 * x1 : x;
        GLOBAL_MEM W *out = y + line * extent2;
#if ON_CPU
        ga_ssize stop = inside && from < length2 ? (length2 - from + step2 - 1) / step2 : 0;
        stop = min(stop, (ga_ssize)extent2);
        const ga_ssize start = min(from < 0 ? (step2 - 1 - from) / step2 : 0, stop);
        for (ga_ssize q = 0; q < start; ++q)
            out[q] = 0;
        const ga_ssize by = step2 * x2;
        const ga_ssize begin = (start * step2 + from) * x2;
        if (by == 1)
            for (ga_ssize q = start; q < stop; ++q)
                out[q] = LOAD(row[begin + q - start]);
        else
            for (ga_ssize q = start; q < stop; ++q)
                out[q] = LOAD(row[begin + (q - start) * by]);
        for (ga_ssize q = stop; q < (ga_ssize)extent2; ++q)
            out[q] = 0;
#else
        if (q < (ga_ssize)extent2) {
            const ga_ssize i2 = q * step2 + from;
            out[q] = inside && i2 >= 0 && i2 < length2 ? LOAD(row[i2 * x2]) : 0;
        }
#endif
    }
}

/* Each block of filters is contiguous, tap by tap, and padded with zeros. */
OUTLINED_KERNEL void pack_filters(ga_size lines, ga_size chunk, ga_size block, ga_size rows, ga_size blocks,
    ga_size channels, ga_size count, ga_ssize by_group, ga_ssize by_row, ga_ssize by_channel, ARRAY ga_long *taps,
    ARRAY T *x, ARRAY W *y)
{
#if ON_CPU
    const ga_size first = get_global_id(0) * chunk, last = min(first + chunk, lines), by_line = 1;
#else
    const ga_size i = get_global_id(0);
    const ga_size first = get_global_id(1), last = lines, by_line = get_global_size(1);
#endif
    for (ga_size line = first; line < last; line += by_line) {
        const ga_size channel = line % channels, row = line / channels % blocks * block;
        const GLOBAL_MEM T *from = x + (ga_ssize)(line / channels / blocks) * by_group + (ga_ssize)channel * by_channel;
        from += (ga_ssize)row * by_row;
        const ga_size some = min(block, rows - row);
        for (ga_size tap = 0; tap < count; ++tap) {
            GLOBAL_MEM W *to = y + (line * count + tap) * block;
#if ON_CPU
            for (ga_size i = 0; i < some; ++i)
                to[i] = LOAD(from[(ga_ssize)i * by_row + taps[tap]]);
            for (ga_size i = some; i < block; ++i)
                to[i] = 0;
#else
            if (i < block)
                to[i] = i < some ? LOAD(from[(ga_ssize)i * by_row + taps[tap]]) : 0;
#endif
        }
    }
}

/* Make the channels of each pixel contiguous, and pad the channels of each group with zeros. */
OUTLINED_KERNEL void pack_features(ga_size lines, ga_size chunk, ga_size pixels, ga_size groups, ga_size features,
    ga_size padded, ARRAY T *x, ARRAY W *y)
{
    const ga_size parts = (pixels + WIDTH - 1) / WIDTH;
    const ga_size first = get_global_id(0) * chunk, last = min(first + chunk, lines);
    for (ga_size line = first; line < last; ++line) {
        const ga_size image = line / parts, p = line % parts * WIDTH;
        const int count = (int)min((ga_size)WIDTH, pixels - p);
        for (ga_size group = 0; group < groups; ++group) {
            const GLOBAL_MEM T *from = x + (image * groups + group) * features * pixels + p;
            GLOBAL_MEM W *to = y + ((image * pixels + p) * groups + group) * padded;
            for (ga_size f = 0; f < features; ++f)
                for (int i = 0; i < count; ++i)
                    to[i * groups * padded + f] = LOAD(from[f * pixels + i]);
            for (ga_size f = features; f < padded; ++f)
                for (int i = 0; i < count; ++i)
                    to[i * groups * padded + f] = 0;
        }
    }
}
