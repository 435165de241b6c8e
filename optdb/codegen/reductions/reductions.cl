/* Kernels of reductions: elements, which PRE computes of those of arrays, are folded by combine.

There are n outputs of m elements each, taken in parts. What is called k is of the axes that stay, and r of those that
go, which are gone over row by row: ROW is the length of the last one. x_base is where the elements of an output begin
in array x, and x_p where the next one is. */

static inline ACC combine(ACC acc, ACC x)
{
    COMBINE
    return acc;
}

static inline VECTOR combine_vectors(VECTOR acc, VECTOR x)
{
    COMBINE_VECTORS
    return acc;
}

/* An item of a processor has `each` outputs. It folds vectors into one, whose lanes are folded at the end. */
OUTLINED_KERNEL void vectors_along(PARAMS)
{
    ONCE
    const ga_size mine = get_global_id(0) % parts;
    const ga_size begin = mine * part, end = min(begin + part, m);
    ga_size o = get_global_id(0) / parts * each;
    const ga_size o_end = min(o + each, n);
    for (; o < o_end; ++o) {
        OFFSETS_OF_OUTPUT
        VECTOR acc = (VECTOR)(IDENTITY);
        ga_size i = begin;
        while (i < end) {
            OFFSETS_IN_ROW
            const ga_size stop = min(end, i + (ROW - column));
            for (; i < stop; i += WIDTH) {
                const int count = (int)min((ga_size)WIDTH, stop - i);
                READ_ALONG
                PRE
                if (count < WIDTH) {
                    union { VECTOR v; ACC s[WIDTH]; } rest_of_row;
                    rest_of_row.v = x;
                    for (int l = count; l < WIDTH; ++l)
                        rest_of_row.s[l] = IDENTITY;
                    x = rest_of_row.v;
                }
                acc = combine_vectors(acc, x);
                NEXT_IN_ROW
            }
            i = stop;
        }
        union { VECTOR v; ACC s[WIDTH]; } lanes;
        lanes.v = acc;
        ACC value = lanes.s[0];
        for (int l = 1; l < WIDTH; ++l)
            value = combine(value, lanes.s[l]);
        STORE
    }
}

/* An item of a processor has a strip of outputs, `each` of the last axis that stays, and a few rows at a time. */
OUTLINED_KERNEL void vectors_across(PARAMS)
{
    ONCE
    const ga_size mine = get_global_id(0) % parts;
    const ga_size begin = mine * part, end = min(begin + part, m);
    const ga_size strips = (SIDE + each - 1) / each;
    const ga_size strip = get_global_id(0) / parts;
    const ga_size from = strip % strips * each, o = strip / strips;
    const int width = (int)min(each, SIDE - from);
    OFFSETS_OF_STRIP
    ACC strip_of[STRIP];
    for (int c = 0; c < width; c += WIDTH)
        VSTORE((VECTOR)(IDENTITY), 0, strip_of + c);
    ga_size i = begin;
    while (i < end) {
        OFFSETS_IN_ROW
        const ga_size stop = min(end, i + (ROW - column));
        for (; i < stop; i += ROWS) {
            const int rows = (int)min((ga_size)ROWS, stop - i);
            for (int c = 0; c < width; c += WIDTH) {
                const int count = min(WIDTH, width - c);
                VECTOR acc = VLOAD(0, strip_of + c);
                for (int r = 0; r < rows; ++r) {
                    READ_ACROSS
                    PRE
                    acc = combine_vectors(acc, x);
                }
                VSTORE(acc, 0, strip_of + c);
            }
            NEXT_ROWS
        }
        i = stop;
    }
    for (int c = 0; c < width; ++c) {
        const ACC value = strip_of[c];
        STORE
        NEXT_OUTPUT
    }
}

/* What an item of another device does by itself, within the kernels below: it folds every `step`-th element. */
void fold(ga_size first, ga_size step)
{
    ACC acc = IDENTITY;
    ga_size i = first;
    if (m == ROW) {
        ACC several[SEVERAL];
        #pragma unroll
        for (int u = 0; u < SEVERAL; ++u)
            several[u] = IDENTITY;
        for (; i + (SEVERAL - 1) * step < end; i += SEVERAL * step) {
            #pragma unroll
            for (int u = 0; u < SEVERAL; ++u) {
                const ga_size column = i + u * step;
                OFFSETS_IN_COLUMN
                READ
                PRE
                several[u] = combine(several[u], x);
            }
        }
        for (; i < end; i += step) {
            const ga_size column = i;
            OFFSETS_IN_COLUMN
            READ
            PRE
            acc = combine(acc, x);
        }
        #pragma unroll
        for (int u = 0; u < SEVERAL; ++u)
            acc = combine(acc, several[u]);
    } else {
        for (; i < end; i += step) {
            OFFSETS_IN_ROW
            READ
            PRE
            acc = combine(acc, x);
        }
    }
}

/* A team of `each` items, within a group, has an output. */
KERNEL void items_along(PARAMS)
{
    LOCAL_MEM ACC shared[GROUP];
    const uint team = (uint)each, lane = (uint)LID_0 % team;
    const ga_size job = GID_0 * (LDIM_0 / team) + LID_0 / team;
    const ga_size mine = job % parts, o = job / parts;
    if (o < n) {
        ONCE
        const ga_size begin = mine * part, end = min(begin + part, m);
        const ga_size first = begin + lane, step = team;
        OFFSETS_OF_OUTPUT
        FOLD
        shared[LID_0] = acc;
    }
    for (uint half_of = team / 2; half_of > 0; half_of /= 2) {
        local_barrier();
        if (lane < half_of && o < n)
            shared[LID_0] = combine(shared[LID_0], shared[LID_0 + half_of]);
    }
    if (lane == 0 && o < n) {
        const ACC value = shared[LID_0];
        OFFSETS_OF_OUTPUT
        STORE
    }
}

/* An item has an output. */
KERNEL void items_across(PARAMS)
{
    const ga_size o = get_global_id(0) % n, mine = get_global_id(0) / n;
    if (mine >= parts)
        return;
    ONCE
    const ga_size begin = mine * part, end = min(begin + part, m);
    const ga_size first = begin, step = 1;
    OFFSETS_OF_OUTPUT
    FOLD
    const ACC value = acc;
    STORE
}
