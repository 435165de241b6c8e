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

/* What an item of another device does by itself, within the kernels below: it folds every `step`-th element, or group of
neighbours, from `first` on. Indexes along the axes that go step as the digits of a number, without divisions. */
void fold(ga_size first, ga_size step)
{
    ACC acc = IDENTITY;
    DIGITS
    LOCATE
    ga_size i = first;
    {
        SEVERAL_BEGIN
        for (; i + (UNROLL - 1) * step < end; i += UNROLL * step) {
            #pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                TAKE_SEVERAL
                NEXT
            }
        }
        #pragma unroll
        for (int u = 0; u < SEVERAL; ++u)
            acc = combine(acc, SEVERAL_END);
    }
    RESTART
    for (; i < end; i += step) {
        TAKE_ONE
        NEXT
    }
}

/* Add to a sum, and what is rounded off to `lost`: the two-sum of Knuth. */
static inline void add(NARROW *sum, NARROW *lost, NARROW x)
{
    const NARROW next = *sum + x, added = next - *sum;
    *lost += (*sum - (next - added)) + (x - added);
    *sum = next;
}

/* Float32 may have overflowed, which float64 does not. */
void restart()
{
    if (!(FINITE)) {
        acc = IDENTITY;
        i = first;
        LOCATE
    }
}

/* A team of `each` items, within a group, has an output: neighbours read neighbours. */
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

/* The items of a group have neighbouring outputs, each of which `each` items share. */
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
