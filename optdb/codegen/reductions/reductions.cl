/* Kernels for reductions: PRE computes elements from elements of the arrays, and combine folds them.

There are n outputs of m elements each, folded in parts. Names with k belong to kept axes, and names with r to reduced
axes, which are traversed row by row: ROW is the length of the last one. x_base is the offset of an output's first
element in array x, and x_p the offset of the next element. */

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

/* Replace the lanes of x from `count` on with the identity. */
void whole_vector()
{
    if (count < WIDTH) {
        union { VECTOR v; ACC s[WIDTH]; } rest_of_row;
        rest_of_row.v = x;
        for (int l = count; l < WIDTH; ++l)
            rest_of_row.s[l] = IDENTITY;
        x = rest_of_row.v;
    }
}

void fold_lanes()
{
    union { VECTOR v; ACC s[WIDTH]; } lanes;
    lanes.v = acc;
    ACC value = lanes.s[0];
    for (int l = 1; l < WIDTH; ++l)
        value = combine(value, lanes.s[l]);
}

/* On a CPU, an item folds `each` outputs. It folds vectors into one vector, whose lanes it folds at the end. */
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
                WHOLE_VECTOR
                acc = combine_vectors(acc, x);
                NEXT_IN_ROW
            }
            i = stop;
        }
        FOLD_LANES
        STORE
    }
}

/* On a CPU, an item folds a strip of `each` outputs along the last kept axis, a few rows at a time. */
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

/* The share of one item in the kernels below, for other devices: the item folds every `step`-th element, or group of
   neighbours, from `first` on. Indexes along reduced axes advance like the digits of a number, without divisions. */
void fold(ga_size first, ga_size step)
{
    ACC acc = IDENTITY;
    DIGITS
    LOCATE
    ga_size i = first;
    {
        SEVERAL_BEGIN
        for (; i + (UNROLL - 1) * step < end; i += UNROLL * step) {
            UNROLLED(u, UNROLL) {
                TAKE_SEVERAL
                NEXT
            }
        }
        UNROLLED(u, SEVERAL)
            acc = combine(acc, SEVERAL_END);
    }
    RESTART
    for (; i < end; i += step) {
        TAKE_ONE
        NEXT
    }
}

/* Add to a sum, and add the rounding error to `lost`: Knuth's two-sum. */
static inline void add(NARROW *sum, NARROW *lost, NARROW x)
{
    const NARROW next = *sum + x, added = next - *sum;
    *lost += (*sum - (next - added)) + (x - added);
    *sum = next;
}

/* Start again in float64: float32 may have overflowed. */
void restart()
{
    if (!(FINITE)) {
        acc = IDENTITY;
        i = first;
        LOCATE
    }
}

/* A team of `each` items within a group folds one output; neighbouring items read neighbouring elements. */
KERNEL void items_along(PARAMS)
{
    LOCAL_MEM ACC shared[GROUP];
    const uint team = (uint)each, lane = (uint)LID_0 % team;
    const ga_size job = GID_0 * (LDIM_0 / team) + LID_0 / team;
    const ga_size mine = job % parts, o = job / parts;
    if (o < n) {
        OFFSETS_OF_OUTPUT
        ONCE
        const ga_size begin = mine * part, end = min(begin + part, m);
        const ga_size first = begin + lane, step = team;
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

/* The items of a group fold neighbouring outputs; `each` items share an output. */
KERNEL void items_across(PARAMS)
{
    LOCAL_MEM ACC shared[GROUP];
    const uint tall = (uint)each, wide = (uint)LDIM_0 / tall;
    const uint row = (uint)LID_0 / wide;
    const ga_size blocks = (n + wide - 1) / wide;
    const ga_size o = GID_0 % blocks * wide + LID_0 % wide, mine = GID_0 / blocks;
    ACC value = IDENTITY;
    if (o < n) {
        OFFSETS_OF_OUTPUT
        ONCE
        const ga_size begin = mine * part, end = min(begin + part, m);
        const ga_size first = begin + row, step = tall;
        FOLD
        value = acc;
    }
    for (uint half_of = tall / 2; half_of > 0; half_of /= 2) {
        if (row >= half_of && row < 2 * half_of)
            shared[LID_0] = value;
        local_barrier();
        if (row < half_of)
            value = combine(value, shared[LID_0 + half_of * wide]);
    }
    if (row == 0 && o < n) {
        OFFSETS_OF_OUTPUT
        STORE
    }
}
