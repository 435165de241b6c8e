/* The numbers of NumPy's PCG64, see random_numbers.py.

A number of 128 bits is a struct of its halves, pcg_number: compilers keep halves of a ulong2 in vector registers, which
are slower. FACTOR_LOW and FACTOR_HIGH are the factor of a step. DRAW is the sample of a word. ON_PROCESSOR is 0 or 1.
*/

static inline pcg_number pcg_of(ulong low, ulong high)
{
    pcg_number z;
    z.low = low;
    z.high = high;
    return z;
}

/* The high bits of a product. With 128-bit integers, CPUs compute them in one instruction. */
static inline ulong pcg_high(ulong a, ulong b)
{
#if ON_PROCESSOR && defined(__SIZEOF_INT128__)
    return (ulong)(((unsigned __int128)a * b) >> 64);
#else
    return mul_hi(a, b);
#endif
}

static inline pcg_number pcg_times(pcg_number a, pcg_number b)
{
    return pcg_of(a.low * b.low, pcg_high(a.low, b.low) + a.low * b.high + a.high * b.low);
}

/* The carry of a sum: a comparison, or the highest bit of half the sum, because Oclgrind 21.10 compares incorrectly. */
static inline ulong pcg_carry(ulong a, ulong b)
{
#if ON_PROCESSOR && defined(__SIZEOF_INT128__)
    return a + b < a;
#else
    return hadd(a, b) >> 63;
#endif
}

static inline pcg_number pcg_plus(pcg_number a, pcg_number b)
{
    return pcg_of(a.low + b.low, a.high + b.high + pcg_carry(a.low, b.low));
}

/* The state after some steps, by binary powers of the step: each squaring composes the step with itself. */
static inline pcg_number pcg_after(pcg_number state, pcg_number increment, ulong steps)
{
    const pcg_number one = pcg_of(1, 0);
    pcg_number factor = pcg_of(FACTOR_LOW, FACTOR_HIGH), summand = increment;
    for (; steps; steps >>= 1) {
        if (steps & 1)
            state = pcg_plus(pcg_times(state, factor), summand);
        summand = pcg_times(pcg_plus(factor, one), summand);
        factor = pcg_times(factor, factor);
    }
    return state;
}

/* The word of a state. */
static inline ulong pcg_word(pcg_number state)
{
    return rotate(state.low ^ state.high, (64 - (state.high >> 58)) & 63);
}

/* On a GPU, an item computes every items-th number: (jump_low, jump_high) is the factor for that many steps, and
   (sum_low, sum_high) is the sum of the smaller powers of the step's factor. */
OUTLINED_KERNEL void pcg64_by_stride(ga_size n, ga_size items, ga_ulong jump_low, ga_ulong jump_high,
    ga_ulong sum_low, ga_ulong sum_high, ARRAY ulong *state, ARRAY T *z)
{
    const ga_size first = get_global_id(0);
    if (first >= items)
        return;
    const pcg_number increment = pcg_of(state[2], state[3]);
    const pcg_number factor = pcg_of(jump_low, jump_high);
    const pcg_number summand = pcg_times(pcg_of(sum_low, sum_high), increment);
    pcg_number x = pcg_after(pcg_of(state[0], state[1]), increment, first + 1);
    for (ga_size i = first; i < n; i += items) {
        const ulong word = pcg_word(x);
        z[i] = DRAW;
        x = pcg_plus(pcg_times(x, factor), summand);
    }
}

/* On a CPU, an item computes a chunk. Two states advance independently of each other, two steps at a time. */
OUTLINED_KERNEL void pcg64_by_chunk(ga_size n, ga_size each, ARRAY ulong *state, ARRAY T *z)
{
    const ga_size first = get_global_id(0) * each, stop = min(first + each, n);
    const pcg_number increment = pcg_of(state[2], state[3]);
    const pcg_number step = pcg_of(FACTOR_LOW, FACTOR_HIGH);
    const pcg_number factor = pcg_times(step, step), summand = pcg_times(pcg_plus(step, pcg_of(1, 0)), increment);
    pcg_number x = pcg_after(pcg_of(state[0], state[1]), increment, first + 1);
    pcg_number y = pcg_plus(pcg_times(x, step), increment);
    ga_size i = first;
    for (; i + 1 < stop; i += 2) {
        ulong word = pcg_word(x);
        z[i] = DRAW;
        word = pcg_word(y);
        z[i + 1] = DRAW;
        x = pcg_plus(pcg_times(x, factor), summand);
        y = pcg_plus(pcg_times(y, factor), summand);
    }
    if (i < stop) {
        const ulong word = pcg_word(x);
        z[i] = DRAW;
    }
}
