/*
The kernels of cross_entropy.cl for devices whose items run side by side: a team of items, within a group, has a row. Its
items read neighbours, and meet in local memory. TEAM finds the row i and the item's lane. FOLD, with an expression of two
values u and v, makes one of those that a team has in `shared`. A team has at most as many items as a row has elements.
An item reads UNROLLED elements of its row before it waits for the first one.
*/

KERNEL void softmax(ga_size rows, ga_size columns, ga_size items, INPUTS, ARRAY T *z)
{
#define AT(j) (ELEMENT)
    LOCAL_MEM W shared[GROUP];
    TEAM
    W largest = 0, sum = 0;
    if (i < rows) {
        largest = AT(lane);
        #pragma unroll UNROLLED
        for (ga_size j = lane + team; j < columns; j += team) {
            const W v = AT(j);
            largest = v > largest || isnan(v) ? v : largest;
        }
    }
    shared[LID_0] = largest;
    FOLD(v > u || isnan(v) ? v : u)
    largest = shared[begin];
    local_barrier();
    if (i < rows) {
        #pragma unroll UNROLLED
        for (ga_size j = lane; j < columns; j += team)
            sum += exp(AT(j) - largest);
    }
    shared[LID_0] = sum;
    FOLD(u + v)
    sum = shared[begin];
    const W log_sum = log(sum);
    if (i < rows) {
        #pragma unroll UNROLLED
        for (ga_size j = lane; j < columns; j += team)
            z[i * columns + j] = STORE(RESULT);
    }
#undef AT
}

KERNEL void softmax_gradient(ga_size rows, ga_size columns, ga_size items, ARRAY T *dy, ga_ssize dy0, ga_ssize dy1,
    ARRAY T *sm, ga_ssize sm0, ga_ssize sm1, ARRAY T *z)
{
    LOCAL_MEM W shared[GROUP];
    TEAM
    const GLOBAL_MEM T *dy_row = dy + (ga_ssize)i * dy0, *sm_row = sm + (ga_ssize)i * sm0;
    W sum = 0;
    if (i < rows) {
        #pragma unroll UNROLLED
        for (ga_size j = lane; j < columns; j += team)
            sum += LOAD(dy_row[(ga_ssize)j * dy1]) * LOAD(sm_row[(ga_ssize)j * sm1]);
    }
    shared[LID_0] = sum;
    FOLD(u + v)
    sum = shared[begin];
    if (i < rows) {
        #pragma unroll UNROLLED
        for (ga_size j = lane; j < columns; j += team) {
            const W weight = LOAD(sm_row[(ga_ssize)j * sm1]);
            z[i * columns + j] = STORE(LOAD(dy_row[(ga_ssize)j * dy1]) * weight - sum * weight);
        }
    }
}

/* Of equal elements, the first one is the largest, and the first NaN of all. What is written could overlap what is read,
   as far as a compiler knows: so some elements are read before the first of them is used. */
KERNEL void crossentropy(ga_size rows, ga_size columns, ga_size items,
    ARRAY T *x, ga_ssize x0, ga_ssize x1, ARRAY T *b, ga_ssize b0, ARRAY ga_long *y GRADIENT,
    ARRAY T *nll, ARRAY T *sm, ARRAY INDEX *am)
{
#define AT(j) (LOAD(x[(ga_ssize)i * x0 + (ga_ssize)(j) * x1]) + LOAD(b[(ga_ssize)(j) * b0]))
#define NEAR(j) (LOAD(x_row[j]) + LOAD(b[j]))
#define WALK(INDEX_TYPE, READ, first, USE) { \
        const INDEX_TYPE end = (INDEX_TYPE)columns; \
        INDEX_TYPE next = (first); \
        for (; next + (UNROLLED - 1) * team < end; next += UNROLLED * team) { \
            W few[UNROLLED]; \
            _Pragma("unroll") \
            for (uint u = 0; u < UNROLLED; ++u) \
                few[u] = READ(next + u * team); \
            _Pragma("unroll") \
            for (uint u = 0; u < UNROLLED; ++u) { \
                const W v = few[u]; \
                const INDEX_TYPE j = next + u * team; \
                USE \
            } \
        } \
        for (; next < end; next += team) { \
            const W v = READ(next); \
            const INDEX_TYPE j = next; \
            USE \
        } \
    }
    /* Short indexes of neighbours are quicker to work out. */
#define OVER_ROW(first, USE) \
    if (is_near) \
        WALK(uint, NEAR, first, USE) \
    else \
        WALK(ga_size, AT, first, USE)
    LOCAL_MEM W shared[GROUP];
    LOCAL_MEM ga_size shared_index[GROUP];
    TEAM
    const bool is_near = x1 == 1 && b0 == 1 && columns < (1u << 31);
    const GLOBAL_MEM T *x_row = x + (ga_ssize)i * x0;
    W largest = 0, sum = 0;
    ga_size index = lane;
    if (i < rows) {
        largest = AT(lane);
        OVER_ROW(lane + team,
            if (v > largest || (isnan(v) && !isnan(largest))) {
                largest = v;
                index = j;
            })
    }
    shared[LID_0] = largest;
    shared_index[LID_0] = index;
    for (uint half_of = team / 2; half_of > 0; half_of /= 2) {
        local_barrier();
        if (lane < half_of) {
            const W u = shared[LID_0], v = shared[LID_0 + half_of];
            const ga_size v_index = shared_index[LID_0 + half_of];
            const int alike = u == v || (isnan(u) && isnan(v));
            if (alike ? v_index < shared_index[LID_0] : v > u || isnan(v)) {
                shared[LID_0] = v;
                shared_index[LID_0] = v_index;
            }
        }
    }
    local_barrier();
    largest = shared[begin];
    index = shared_index[begin];
    local_barrier();
    if (i < rows) {
        OVER_ROW(lane, sum += exp(v - largest);)
    }
    shared[LID_0] = sum;
    FOLD(u + v)
    sum = shared[begin];
    if (i < rows) {
        GLOBAL_MEM T *sm_row = sm + i * columns;
        READ_GRADIENT
        OVER_ROW(lane,
            const W weight = exp(v - largest) / sum;
            STORE_WEIGHT)
        if (lane == 0) {
            nll[i] = STORE(largest - AT(y[i]) + log(sum));
            am[i] = (INDEX)index;
        }
    }
#undef AT
#undef NEAR
#undef WALK
#undef OVER_ROW
}

KERNEL void crossentropy_gradient(ga_size rows, ga_size columns, ga_size items, ARRAY T *dy, ga_ssize dy0,
    ARRAY T *sm, ga_ssize sm0, ga_ssize sm1, ARRAY ga_long *y, ARRAY T *dx)
{
    TEAM
    if (i >= rows)
        return;
    const W by = LOAD(dy[(ga_ssize)i * dy0]);
    const ga_size its_class = (ga_size)y[i];
    #pragma unroll UNROLLED
    for (ga_size j = lane; j < columns; j += team) {
        const W part = by * LOAD(sm[(ga_ssize)i * sm0 + (ga_ssize)j * sm1]);
        dx[i * columns + j] = STORE(j == its_class ? part - by : part);
    }
}
