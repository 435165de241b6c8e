/* The code of fused loops, and the kernel for GPUs: items process n points, EACH neighbours at a time, with a grid
stride. For CPUs, the kernel is `chunked` in elementwise.cl. */

KERNEL void loop(PARAMS)
{
    SHARED
    ONCE
    for (ga_size i = get_global_id(0) * EACH; i < n; i += get_global_size(0) * EACH) {
        OFFSETS
        POINTS
    }
    FINISH
}

/* The items of a group fold their accumulators. */
void fold_items()
{
    shared[LID_0] = acc;
    local_barrier();
    for (uint half_of = GROUP / 2; half_of > 0; half_of /= 2) {
        if (LID_0 < half_of)
            shared[LID_0] = combine(shared[LID_0], shared[LID_0 + half_of]);
        local_barrier();
    }
    if (LID_0 == 0)
        PART = STORE(shared[0]);
    local_barrier();
}

/* An index divided by a length, which `by` describes: see SizeArguments.quotient. */
static inline uint quotient(uint x, ga_ssize by)
{
    return (uint)(((ulong)x * (uint)by) >> (by >> 32));
}

/* The dot product of a vector and a matrix row, given by its first element. */
static inline T row_product(const GLOBAL_MEM T *row, const GLOBAL_MEM T *vector, ga_size length)
{
    VECTOR sum = (VECTOR)(0);
    ga_size c = 0;
    for (; c + WIDTH <= length; c += WIDTH)
        sum += VLOAD(0, row + c) * VLOAD(0, vector + c);
    const HALF half_sum = sum.lo + sum.hi;
    const QUARTER quarter_sum = half_sum.lo + half_sum.hi;
    const PAIR pair_sum = quarter_sum.lo + quarter_sum.hi;
    T result = pair_sum.lo + pair_sum.hi;
    for (; c < length; ++c)
        result += row[c] * vector[c];
    return result;
}

/* Add rows, each multiplied by a factor, to a vector. */
static inline void add_rows(
    GLOBAL_MEM T *sums, const GLOBAL_MEM T *row, ga_ssize step, VECTOR by, int count, ga_size length)
{
    union { VECTOR v; T s[WIDTH]; } factors;
    factors.v = by;
    int r = 0;
    for (; r + 4 <= count; r += 4, row += 4 * step) {
        const T f0 = factors.s[r], f1 = factors.s[r + 1], f2 = factors.s[r + 2], f3 = factors.s[r + 3];
        const GLOBAL_MEM T *row1 = row + step, *row2 = row1 + step, *row3 = row2 + step;
        ga_size c = 0;
        for (; c + WIDTH <= length; c += WIDTH)
            VSTORE(VLOAD(0, sums + c) + f0 * VLOAD(0, row + c) + f1 * VLOAD(0, row1 + c) + f2 * VLOAD(0, row2 + c)
                + f3 * VLOAD(0, row3 + c), 0, sums + c);
        for (; c < length; ++c)
            sums[c] += f0 * row[c] + f1 * row1[c] + f2 * row2[c] + f3 * row3[c];
    }
    for (; r < count; ++r, row += step)
        for (ga_size c = 0; c < length; ++c)
            sums[c] += factors.s[r] * row[c];
}

/* Add to a number that other items may also add to; retry if it has changed meanwhile. */
static inline void add_atomically(volatile GLOBAL_MEM T *sum, T by)
{
    volatile GLOBAL_MEM BITS *bits = (volatile GLOBAL_MEM BITS *)sum;
    BITS before = *bits, expected;
    do {
        expected = before;
        before = COMPARE_EXCHANGE(bits, expected, AS_BITS(AS_T(expected) + by));
    } while (before != expected);
}

/* The same by an instruction of NVIDIA's GPUs, which is several times faster if many items add to the same number. It
treats denormal numbers of float32 as zero. */
static inline void add_by_instruction(volatile GLOBAL_MEM T *sum, T by)
{
    asm volatile("red.global.add.TYPE [%0], %1;" : : "l"(sum), REGISTER(by) : "memory");
}
