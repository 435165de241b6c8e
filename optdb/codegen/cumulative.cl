/* Kernels for cumulative sums or products along an axis.

LENGTHS, X_STEPS and Z_STEPS are parameters for the kept axes; their names end with the number of the axis. */

static inline W combine(W a, W b)
{
    return COMBINE;
}

/* Rows of n elements, WIDTH rows at a time. */
OUTLINED_KERNEL void rows(ga_size count, ga_size n, ga_size each, LENGTHS,
    ARRAY T *x, X_STEPS, ga_ssize x_step, ARRAY T *z, Z_STEPS, ga_ssize z_step)
{
    const ga_size stop = min((get_global_id(0) + 1) * each, count);
    for (ga_size first = get_global_id(0) * each; first < stop; first += WIDTH) {
        const int here = (int)min((ga_size)WIDTH, stop - first);
        ga_ssize xp[WIDTH], zp[WIDTH];
        W acc[WIDTH];
        for (int c = 0; c < here; ++c) {
            ga_size rest = first + c;
            xp[c] = zp[c] = 0;
            ADD_OFFSETS
            acc[c] = LOAD(x[xp[c]]);
            z[zp[c]] = STORE(acc[c]);
        }
        if (here == WIDTH)
            for (ga_size i = 1; i < n; ++i)
                for (int c = 0; c < WIDTH; ++c) {
                    xp[c] += x_step;
                    zp[c] += z_step;
                    const T sum = STORE(combine(acc[c], LOAD(x[xp[c]])));
                    z[zp[c]] = sum;
                    acc[c] = LOAD(sum);
                }
        else
            for (int c = 0; c < here; ++c) {
                const GLOBAL_MEM T *from = x + xp[c];
                GLOBAL_MEM T *to = z + zp[c];
                W one = acc[c];
                for (ga_size i = 1; i < n; ++i) {
                    from += x_step;
                    to += z_step;
                    const T sum = STORE(combine(one, LOAD(*from)));
                    *to = sum;
                    one = LOAD(sum);
                }
            }
    }
}

/* The items of a group replace the sums in a tile with their running totals. */
void scan()
{
    local_barrier();
    for (ga_size reach = 1; reach < LDIM_0; reach *= 2) {
        const W before = LID_0 >= reach ? tile[LID_0 - reach] : 0;
        local_barrier();
        if (LID_0 >= reach)
            tile[LID_0] = combine(before, tile[LID_0]);
        local_barrier();
    }
}

/* A group accumulates a piece of a row, in tiles of EACH consecutive elements for each item: it writes the total of the
piece, or the results from the given starts. */
KERNEL void pieces(ga_size pieces, ga_size n, ga_size piece, ga_size writing, LENGTHS,
    ARRAY T *x, X_STEPS, ga_ssize x_step, ARRAY T *z, Z_STEPS, ga_ssize z_step, ARRAY W *totals, LOCAL_MEM_ARG W *tile)
{
    const ga_size row = GID_0 / pieces, mine = GID_0 % pieces;
    const ga_size begin = mine * piece, end = min(begin + piece, n);
    ga_size rest = row;
    ga_ssize xp[1] = {0}, zp[1] = {0};
    const int c = 0;
    ADD_OFFSETS
    LOCAL_MEM_ARG W *elements = tile + LDIM_0;
    const bool later = writing && mine > 0;
    W carry = later ? totals[row * pieces + mine - 1] : 0;
    for (ga_size at = begin; at < end; at += LDIM_0 * EACH) {
        /* Neighbouring items read neighbouring elements; a gap after each item's elements avoids bank conflicts. */
        for (ga_size e = LID_0; e < LDIM_0 * EACH; e += LDIM_0)
            elements[e + e / EACH] = at + e < end ? LOAD(x[xp[0] + (ga_ssize)(at + e) * x_step]) : (W)IDENTITY;
        local_barrier();
        LOCAL_MEM_ARG W *own = elements + LID_0 * (EACH + 1);
        W sum = own[0];
        for (int e = 1; e < EACH; ++e)
            sum = combine(sum, own[e]);
        tile[LID_0] = sum;
        SCAN
        const bool carried = later || at > begin;
        const W total = tile[LDIM_0 - 1];
        if (writing) {
            if (LID_0 > 0)
                own[0] = combine(carried ? combine(carry, tile[LID_0 - 1]) : tile[LID_0 - 1], own[0]);
            else if (carried)
                own[0] = combine(carry, own[0]);
            for (int e = 1; e < EACH; ++e)
                own[e] = combine(own[e - 1], own[e]);
            local_barrier();
            for (ga_size e = LID_0; e < LDIM_0 * EACH; e += LDIM_0)
                if (at + e < end)
                    z[zp[0] + (ga_ssize)(at + e) * z_step] = STORE(elements[e + e / EACH]);
        }
        carry = carried ? combine(carry, total) : total;
        local_barrier();
    }
    if (!writing && LID_0 == 0)
        totals[row * pieces + mine] = carry;
}

/* A group accumulates the totals of a row's pieces. */
KERNEL void starts(ga_size pieces, ARRAY W *totals, LOCAL_MEM_ARG W *tile)
{
    const ga_size first = GID_0 * pieces;
    W carry = 0;
    for (ga_size at = 0; at < pieces; at += LDIM_0) {
        const ga_size i = at + LID_0;
        tile[LID_0] = i < pieces ? totals[first + i] : (W)IDENTITY;
        SCAN
        const W sum = at > 0 ? combine(carry, tile[LID_0]) : tile[LID_0];
        carry = at > 0 ? combine(carry, tile[LDIM_0 - 1]) : tile[LDIM_0 - 1];
        if (i < pieces)
            totals[first + i] = sum;
        local_barrier();
    }
}
