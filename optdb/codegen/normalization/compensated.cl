/* Reductions of channels on devices with slow or no float64. Sums are compensated: each has a second number that
accumulates its rounding errors. W is the type to compute in.

Moments are the number of elements, their mean (mean + rest), and their sum of squared deviations from it (squares +
lost). Sums are the sums of the gradient. A State is one of the two. `add` is in reductions.cl. */

/* The compensation of an infinite sum is NaN, and is ignored. */
static inline W total(W sum, W lost)
{
    return isfinite(sum) ? sum + lost : sum;
}

/* Merge the moments of other elements into these, by the formulas of Chan, Golub and LeVeque. */
static inline void merge_moments(Moments *these, Moments those)
{
    if (those.count == 0)
        return;
    if (these->count == 0) {
        *these = those;
        return;
    }
    const W all = these->count + those.count, weight = those.count / all;
    W off = those.mean, off_lost = 0;
    add(&off, &off_lost, -these->mean);
    off += off_lost + (those.rest - these->rest);
    if (isfinite(off)) {
        add(&these->mean, &these->rest, off * weight);
    } else {
        these->mean = total(these->mean, these->rest) * (1 - weight) + total(those.mean, those.rest) * weight;
        these->rest = 0;
    }
    add(&these->squares, &these->lost, those.squares);
    add(&these->squares, &these->lost, off * off * (these->count * weight));
    these->lost += those.lost;
    these->count = all;
}

/* Merge some elements, whose mean and squared deviations are first computed in registers. */
static inline void merge_elements(Moments *these, const W *x, uint count)
{
    /* Elements have similar magnitudes, so differences from one of them are exact or small. */
    const W pivot = isfinite(x[0]) ? x[0] : 0;
    W sum = 0, squares = 0;
    UNROLLED(u, count)
        sum += x[u] - pivot;
    const W off = sum / count;
    UNROLLED(u, count) {
        const W d = (x[u] - pivot) - off;
        squares += d * d;
    }
    Moments those = {count, pivot, 0, squares, 0};
    if (isfinite(off)) {
        add(&those.mean, &those.rest, off);
    } else {
        those.mean = off;
    }
    merge_moments(these, those);
}

static inline void merge_sums(Sums *these, Sums those)
{
    add(&these->dy, &these->dy_lost, those.dy);
    add(&these->product, &these->product_lost, those.product);
    add(&these->d, &these->d_lost, those.d);
    these->dy_lost += those.dy_lost;
    these->product_lost += those.product_lost;
    these->d_lost += those.d_lost;
}

static inline void add_element(Sums *these, W x, W dy, W center)
{
    const W d = x - center;
    add(&these->dy, &these->dy_lost, dy);
    add(&these->product, &these->product_lost, dy * d);
    add(&these->d, &these->d_lost, d);
}

/* A team of items within a group folds a part of a row. */
KERNEL void fold_rows(PARAMS)
{
    LOCAL_MEM State shared[GROUP];
    const uint team = (uint)items, lane = (uint)LID_0 % team;
    const ga_size job = GID_0 * (LDIM_0 / team) + LID_0 / team, mine = job / n, k = job % n;
    State state = {0};
    if (mine < parts) {
        const ga_size first = mine * part + lane, end = min((mine + 1) * part, m), step = team;
        FOLD
    }
    MEET
    if (lane == 0 && mine < parts) {
        state = shared[LID_0];
        STORE_STATE
    }
}

/* An item folds a part of a column. */
KERNEL void fold_columns(PARAMS)
{
    const ga_size mine = get_global_id(0) / n, k = get_global_id(0) % n;
    if (mine >= parts)
        return;
    State state = {0};
    const ga_size first = mine * part, end = min(first + part, m), step = 1;
    FOLD
    STORE_STATE
}

/* The common code of both kernels; the elements are `step` apart. */
void fold()
{
    BASE
    const ga_size column_step = step % ROW, row_step = step / ROW;
    ga_size column = first % ROW, row = first / ROW;
    ga_ssize p;
    LOCATE
    ga_size i = first;
    for (; i + (SEVERAL - 1) * step < end; i += SEVERAL * step) {
        READ_SEVERAL
    }
    for (; i < end; i += step) {
        READ_ONE
    }
}

/* The items of each team merge their states. */
void meet()
{
    shared[LID_0] = state;
    for (uint half_of = team / 2; half_of > 0; half_of /= 2) {
        local_barrier();
        if (lane < half_of) {
            State whole = shared[LID_0];
            MERGE(&whole, shared[LID_0 + half_of]);
            shared[LID_0] = whole;
        }
    }
}

/* A team merges the parts of a channel, and one item of it has the result. */
void merged()
{
    LOCAL_MEM State shared[GROUP];
    const uint team = (uint)items, lane = (uint)LID_0 % team;
    const ga_size k = GID_0 * (LDIM_0 / team) + LID_0 / team;
    State state = {0};
    if (k < n) {
        for (ga_size i = lane; i < parts; i += team) {
            const ga_size at = i * n + k;
            State more = {PARTIAL};
            MERGE(&state, more);
        }
    }
    MEET
    if (lane == 0 && k < n)
}

/* The merged numbers of a channel, see numbers.cl. */
void merged_moments()
{
    state = shared[LID_0];
    /* The mean is stored as two numbers: its value rounded to W, and the rest. */
    const W rounded = m ? state.mean : (N)NAN;
    const W rest = isfinite(state.mean) ? (state.mean - (N)(W)state.mean) + state.rest : 0;
    const N mean = m ? total(state.mean, state.rest) : (N)NAN, squares = total(state.squares, state.lost);
}

void merged_sums()
{
    state = shared[LID_0];
    const N sum_dy = total(state.dy, state.dy_lost), sum_d = total(state.d, state.d_lost);
    const N product = total(state.product, state.product_lost);
}
