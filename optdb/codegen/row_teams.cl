/* Kernels of cross_entropy.cl for devices that run items in parallel. An item loads SEVERAL elements, or FOURS times
four, of its row before it uses the first one. */

/* A row of at most EACH elements per item is read once, and kept in registers, where WEIGH may replace an element v by
its weight. RESULT_OF_KEPT is the result for such a v. Longer rows are read three times, SEVERAL elements at once. */
KERNEL void softmax(ga_size rows, ga_size columns, ga_size items, INPUTS, ARRAY T *z)
{
#define AT(j) (ELEMENT)
#define OVER_ROW(USE, USE_KEPT) \
    if (is_kept) { \
        UNROLLED(e, EACH) { \
            const ga_size j = lane + (ga_size)e * team; \
            const W v = kept[e]; \
            USE_KEPT \
        } \
    } else if (i < rows) { \
        for (ga_size next = lane; next < columns; next += SEVERAL * team) \
            UNROLLED(e, SEVERAL) { \
                const ga_size j = next + (ga_size)e * team; \
                const W v = j < columns ? AT(j) : -INFINITY; \
                USE \
            } \
    }
#define MOST largest = v > largest || isnan(v) ? v : largest;
    SHARED
    TEAM
    const bool is_kept = columns <= (ga_size)team * EACH;
    W kept[EACH], largest = -INFINITY, sum = 0;
    UNROLLED(e, EACH)
        kept[e] = is_kept && i < rows && lane + (ga_size)e * team < columns ? AT(lane + (ga_size)e * team) : -INFINITY;
    OVER_ROW(MOST, MOST)
    FOLD(largest, v > u || isnan(v) ? v : u)
    OVER_ROW(sum += exp(v - largest);, const W weight = exp(v - largest); sum += weight; WEIGH)
    FOLD(sum, u + v)
    const W log_sum = log(sum);
    OVER_ROW(if (j < columns) z[i * columns + j] = STORE(RESULT);,
             if (i < rows && j < columns) z[i * columns + j] = STORE(RESULT_OF_KEPT);)
#undef MOST
#undef OVER_ROW
#undef AT
}

/* The first of equal elements counts as the largest; the first NaN exceeds all numbers.

   A row is read twice: for its largest element and the sum, then to write the results. The sum is that of exp(v -
   largest) for the largest element so far, and is rescaled when a larger one is found: see Milakov and Gimelshein,
   "Online normalizer calculation for softmax" (2018). An item loads COUNT elements, some possibly beyond the end of the
   row, before it uses the first one: WIDTH neighbours, and as many at each further `step`. */
KERNEL void crossentropy(ga_size rows, ga_size columns, ga_size items,
    ARRAY T *x, ga_ssize x0, ga_ssize x1, ARRAY T *b, ga_ssize b0, ARRAY ga_long *y GRADIENT,
    ARRAY T *nll, ARRAY T *sm, ARRAY INDEX *am)
{
#define AT(j) (LOAD(x[(ga_ssize)i * x0 + (ga_ssize)(j) * x1]) + LOAD(b[(ga_ssize)(j) * b0]))
#define READ_ONE(to, j) (to)[0] = AT(j);
#define READ_NEAR(to, j) (to)[0] = LOAD(x_row[j]) + LOAD(b[j]);
#define READ_FOUR(to, j) { \
        const float4 four = *(const GLOBAL_MEM float4 *)(x_row + (j)) + *(const GLOBAL_MEM float4 *)(b + (j)); \
        (to)[0] = four.x, (to)[1] = four.y, (to)[2] = four.z, (to)[3] = four.w; \
    }
#define STORE_1(j, from) sm_row[j] = STORE((from)[0]);
#define STORE_4(j, from) \
    *(GLOBAL_MEM float4 *)(sm_row + (j)) = (float4)((from)[0], (from)[1], (from)[2], (from)[3]);
#define PLACE(e, WIDTH) (next + (e) / WIDTH * step + (e) % WIDTH)
    /* Neighbours that are read at once belong to the same row. */
#define IS_THERE(e, WIDTH) (next + (e) / WIDTH * step < end)
    /* All items make the same number of reads, without branches between them. */
#define WALK(INDEX_TYPE, READ, WIDTH, COUNT, USE) { \
        const INDEX_TYPE end = (INDEX_TYPE)columns, step = team * WIDTH; \
        for (INDEX_TYPE next = lane * WIDTH; next < end; next += (COUNT) / WIDTH * step) { \
            W few[COUNT]; \
            UNROLLED_RANGE(e, 0, COUNT, WIDTH) \
                READ(few + e, IS_THERE(e, WIDTH) ? PLACE(e, WIDTH) : 0) \
            USE(INDEX_TYPE, WIDTH, COUNT) \
        } \
    }
    /* 32-bit indexes of neighbours are faster to compute. */
#define OVER_ROW(USE) \
    if (has_fours) \
        WALK(uint, READ_FOUR, 4, 4 * FOURS, USE) \
    else if (is_near) \
        WALK(uint, READ_NEAR, 1, SEVERAL, USE) \
    else \
        WALK(ga_size, READ_ONE, 1, SEVERAL, USE)
    /* The number to subtract: 0 if all elements are -infinity, so that they add 0 if a larger one follows. */
#define BASE(most) ((most) == -INFINITY ? 0 : (most))
    /* The largest element is found by fmax, which ignores NaN; a NaN sum reveals it. */
#define ADD(INDEX_TYPE, WIDTH, COUNT) \
    W most = largest, part = 0; \
    UNROLLED(e, COUNT) { \
        few[e] = IS_THERE(e, WIDTH) ? few[e] : -INFINITY; \
        most = fmax(most, few[e]); \
    } \
    const W base = BASE(most); \
    UNROLLED(e, COUNT) \
        part += exp(few[e] - base); \
    sum = sum * exp(largest - base) + part; \
    if (isnan(part)) { \
        UNROLLED(e, COUNT) \
            if (few[e] > largest || (isnan(few[e]) && !isnan(largest))) { \
                largest = few[e]; \
                index = PLACE(e, WIDTH); \
            } \
    } else if (most > largest) { \
        _Pragma("unroll") \
        for (uint e = COUNT; e-- > 0;) \
            index = few[e] == most ? PLACE(e, WIDTH) : index; \
        largest = most; \
    }
#define WRITE(INDEX_TYPE, WIDTH, COUNT) \
    UNROLLED(e, COUNT) { \
        const W weight = exp(few[e] - largest) / sum; \
        const INDEX_TYPE j = PLACE(e, WIDTH); \
        RESULT_OF_WEIGHT \
        few[e] = result; \
    } \
    UNROLLED_RANGE(e, 0, COUNT, WIDTH) \
        if (IS_THERE(e, WIDTH)) \
            STORE_##WIDTH(PLACE(e, WIDTH), few + e)
    LOCAL_MEM W shared[GROUP];
    LOCAL_MEM W shared_sum[GROUP];
    LOCAL_MEM ga_size shared_index[GROUP];
    TEAM
    const bool is_near = x1 == 1 && b0 == 1 && columns < (1u << 31);
    const GLOBAL_MEM T *x_row = x + (ga_ssize)i * x0;
    GLOBAL_MEM T *sm_row = sm + i * columns;
    /* Elements of 4 bytes are float32, and are computed in float32. */
    const bool has_fours = sizeof(T) == 4 && is_near && columns % 4 == 0 &&
                           (ulong)x_row % 16 == 0 && (ulong)b % 16 == 0 && (ulong)sm_row % 16 == 0;
    /* If all elements are -infinity, the largest is the first one, which the first item reads. */
    W largest = -INFINITY, sum = 0;
    ga_size index = lane;
    if (i < rows) {
        OVER_ROW(ADD)
    }
    shared[LID_0] = largest;
    shared_sum[LID_0] = sum;
    shared_index[LID_0] = index;
    for (uint half_of = team / 2; half_of > 0; half_of /= 2) {
        local_barrier();
        if (lane < half_of) {
            const uint other = LID_0 + half_of;
            const W u = shared[LID_0], v = shared[other], most = fmax(u, v), base = BASE(most);
            const ga_size v_index = shared_index[other];
            const int alike = u == v || (isnan(u) && isnan(v));
            shared_sum[LID_0] = shared_sum[LID_0] * exp(u - base) + shared_sum[other] * exp(v - base);
            if (alike ? v_index < shared_index[LID_0] : v > u || isnan(v)) {
                shared[LID_0] = v;
                shared_index[LID_0] = v_index;
            }
        }
    }
    local_barrier();
    largest = shared[begin];
    sum = shared_sum[begin];
    if (i < rows) {
        READ_GRADIENT
        OVER_ROW(WRITE)
        if (lane == 0) {
            nll[i] = STORE(largest - AT(y[i]) + log(sum));
            am[i] = (INDEX)shared_index[begin];
        }
    }
}
