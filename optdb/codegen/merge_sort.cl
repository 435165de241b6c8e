/* Kernels of the merge sort, see sorting.py.

Kernels take an order by its number. VALUE_OF and IS_NAN are functions for the type of the elements; integers equal themselves.
INDICES says whether the kernels also sort indices; if so, INDICES_FROM and INDICES_TO declare their arrays. */

static inline W value_of(T x)
{
    return x;
}

static inline int is_nan(W x)
{
    return x != x;
}

/* A half is compared by its bits, as an integer; NaN becomes the largest integer. */
static inline W value_of_half(T x)
{
    const int size = x & 0x7fff;
    return size > 0x7c00 ? 0x8000 : x & 0x8000 ? -size : size;
}

static inline int is_nan_half(W x)
{
    return x == 0x8000;
}

static inline int before(T first, T second, int order)
{
    const W a = VALUE_OF(first), b = VALUE_OF(second);
    return order == 0 ? (a < b) | (!IS_NAN(a) & IS_NAN(b))
        : (order == 1 ? b < a : a < b) | (IS_NAN(a) & !IS_NAN(b));
}

KERNEL void blocks_on_cpu(ga_int given, ga_size rows, ga_size n, ga_size each, ARRAY T *x, ARRAY T *z INDICES_TO)
{
    const int order = ORDER;
    const ga_size per_row = (n + BLOCK - 1) / BLOCK;
    const ga_size stop = min((get_global_id(0) + 1) * each, rows * per_row);
    for (ga_size s = get_global_id(0) * each; s < stop; ++s) {
        const ga_size begin = s % per_row * BLOCK, at = s / per_row * n + begin;
        const int here = (int)min((ga_size)BLOCK, n - begin);
        T v[BLOCK];
        uchar from[BLOCK];
        for (int i = 0; i < here; ++i) {
            const T x_i = x[at + i];
            int j = i;
            for (; j > 0 && before(x_i, v[j - 1], order); --j) {
                v[j] = v[j - 1];
                from[j] = from[j - 1];
            }
            v[j] = x_i;
            from[j] = (uchar)i;
        }
        for (int i = 0; i < here; ++i) {
            z[at + i] = v[i];
#if INDICES
            q[at + i] = begin + from[i];
#endif
        }
    }
}

static inline bool precedes(LOCAL_MEM T *v, LOCAL_MEM uint *from, uint i, uint j, uint here, int order)
{
    if (from[i] >= here || from[j] >= here)
        return from[i] < from[j];
    return before(v[i], v[j], order) || (!before(v[j], v[i], order) && from[i] < from[j]);
}

KERNEL void blocks_on_gpu(ga_int given, ga_size rows, ga_size n, ga_size each, ARRAY T *x, ARRAY T *z INDICES_TO)
{
    LOCAL_MEM T v[BLOCK];
    LOCAL_MEM uint from[BLOCK];
    const int order = ORDER;
    const ga_size per_row = (n + BLOCK - 1) / BLOCK;
    const ga_size begin = GID_0 % per_row * BLOCK, at = GID_0 / per_row * n + begin;
    const uint here = (uint)min((ga_size)BLOCK, n - begin);
    for (uint i = LID_0; i < BLOCK; i += LDIM_0) {
        from[i] = i;
        if (i < here)
            v[i] = x[at + i];
    }
    local_barrier();
    for (uint size = 2; size <= BLOCK; size *= 2)
        for (uint step = size / 2; step > 0; step /= 2) {
            for (uint t = LID_0; t < BLOCK / 2; t += LDIM_0) {
                const uint i = 2 * t - (t & (step - 1)), j = i + step;
                if (i & size ? precedes(v, from, i, j, here, order) : precedes(v, from, j, i, here, order)) {
                    const T v_i = v[i];
                    const uint from_i = from[i];
                    v[i] = v[j];
                    from[i] = from[j];
                    v[j] = v_i;
                    from[j] = from_i;
                }
            }
            local_barrier();
        }
    for (uint i = LID_0; i < here; i += LDIM_0) {
        z[at + i] = v[i];
#if INDICES
        q[at + i] = begin + from[i];
#endif
    }
}

KERNEL void merge(ga_int given, ga_size rows, ga_size n, ga_size width, ga_size segment, ga_size keep, ga_size each,
    ARRAY T *x, ARRAY T *z INDICES_FROM INDICES_TO)
{
    const int order = ORDER;
    const ga_size per_row = (n + segment - 1) / segment;
    const ga_size stop = min((get_global_id(0) + 1) * each, rows * per_row);
    for (ga_size s = get_global_id(0) * each; s < stop; ++s) {
        const ga_size row = s / per_row * n, begin = s % per_row * segment;
        const ga_size base = begin / (2 * width) * (2 * width);
        const ga_size gone = begin - base;
        if (gone >= keep)
            continue;
        const ga_size middle = min(base + width, n), limit = min(base + 2 * width, n);
        const ga_size left = row + base, right = row + middle;
        const ga_size n_left = min(middle - base, keep), n_right = min(limit - middle, keep);
        const ga_size end = min(min(gone + segment, keep), n_left + n_right);
        /* Signed, because Oclgrind lacks saturating subtraction. */
        ga_size low = (ga_size)max((ga_ssize)gone - (ga_ssize)n_right, (ga_ssize)0), high = min(gone, n_left);
        while (low < high) {
            const ga_size mid = (low + high) / 2;
            if (before(x[right + gone - 1 - mid], x[left + mid], order))
                high = mid;
            else
                low = mid + 1;
        }
        ga_size i = low, j = gone - low, o = gone;
        while (o < end) {
            /* The next `sure` steps exhaust neither run. They avoid branches, which would be unpredictable. */
            const ga_size sure = min(min(n_left - i, n_right - j), end - o);
            for (const ga_size stop = o + sure; o < stop; ++o) {
                const T a = x[left + i], b = x[right + j];
                const int second = before(b, a, order);
                z[left + o] = second ? b : a;
#if INDICES
                q[left + o] = p[second ? right + j : left + i];
#endif
                i += 1 - second;
                j += second;
            }
            if (i < n_left && j < n_right)
                continue;
            const ga_size rest = i < n_left ? left + i : right + j;
            const ga_size from = o;
            for (; o < end; ++o) {
                z[left + o] = x[rest + o - from];
#if INDICES
                q[left + o] = p[rest + o - from];
#endif
            }
        }
    }
}
