"""The OpenCL C of the sort by merging, see `optdb.codegen.sort.merge`: its kernels ask for an order by its number."""

COMMON = """
#define PLACES {places}
#define BLOCK {block}
{value}
static inline int before({stored} first, {stored} second, int order)
{{
const {work} a = value_of(first), b = value_of(second);
return {before};
}}
"""

#: What elements are compared by. A half is compared by its bits, as a whole number; what is none is the largest.
VALUE = """
#define NO_NUMBER(x) ((x) != (x))
static inline {work} value_of({stored} x) {{ return x; }}
"""
VALUE_OF_HALF = """
#define NO_NUMBER(x) ((x) == 0x8000)
static inline int value_of(ushort x)
{
const int size = x & 0x7fff;
return size > 0x7c00 ? 0x8000 : x & 0x8000 ? -size : size;
}
"""

BEFORE = "order == 1 ? b < a : a < b"
BEFORE_OR_NAN = """order == 0 ? (a < b) | (!NO_NUMBER(a) & NO_NUMBER(b))
    : (order == 1 ? b < a : a < b) | (NO_NUMBER(a) & !NO_NUMBER(b))"""

INSERTION = """
KERNEL void blocks(ga_int given, ga_size rows, ga_size n, ga_size each, GLOBAL_MEM {stored} *x, ga_size x_off,
    GLOBAL_MEM {stored} *z, ga_size z_off
#if PLACES
    , GLOBAL_MEM ga_long *q, ga_size q_off
#endif
    )
{{
x = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)x + x_off);
z = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)z + z_off);
#if PLACES
q = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)q + q_off);
#endif
const int order = {order};
const ga_size per_row = (n + BLOCK - 1) / BLOCK;
const ga_size stop = min((get_global_id(0) + 1) * each, rows * per_row);
for (ga_size s = get_global_id(0) * each; s < stop; ++s) {{
    const ga_size begin = s % per_row * BLOCK, at = s / per_row * n + begin;
    const int here = (int)min((ga_size)BLOCK, n - begin);
    {stored} v[BLOCK];
#if PLACES
    uchar from[BLOCK];
#endif
    for (int i = 0; i < here; ++i) {{
        const {stored} x_i = x[at + i];
        int j = i;
        for (; j > 0 && before(x_i, v[j - 1], order); --j) {{
            v[j] = v[j - 1];
#if PLACES
            from[j] = from[j - 1];
#endif
        }}
        v[j] = x_i;
#if PLACES
        from[j] = (uchar)i;
#endif
    }}
    for (int i = 0; i < here; ++i) {{
        z[at + i] = v[i];
#if PLACES
        q[at + i] = begin + from[i];
#endif
    }}
}}
}}
"""

BITONIC = """
static inline bool precedes(LOCAL_MEM {stored} *v, LOCAL_MEM uint *from, uint i, uint j, uint here,
    int order)
{{
if (from[i] >= here || from[j] >= here)
    return from[i] < from[j];
return before(v[i], v[j], order) || (!before(v[j], v[i], order) && from[i] < from[j]);
}}
KERNEL void blocks(ga_int given, ga_size rows, ga_size n, ga_size each, GLOBAL_MEM {stored} *x, ga_size x_off,
    GLOBAL_MEM {stored} *z, ga_size z_off
#if PLACES
    , GLOBAL_MEM ga_long *q, ga_size q_off
#endif
    )
{{
x = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)x + x_off);
z = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)z + z_off);
#if PLACES
q = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)q + q_off);
#endif
LOCAL_MEM {stored} v[BLOCK];
LOCAL_MEM uint from[BLOCK];
const int order = {order};
const ga_size per_row = (n + BLOCK - 1) / BLOCK;
const ga_size begin = GID_0 % per_row * BLOCK, at = GID_0 / per_row * n + begin;
const uint here = (uint)min((ga_size)BLOCK, n - begin);
for (uint i = LID_0; i < BLOCK; i += LDIM_0) {{
    from[i] = i;
    if (i < here)
        v[i] = x[at + i];
}}
local_barrier();
for (uint size = 2; size <= BLOCK; size *= 2)
    for (uint step = size / 2; step > 0; step /= 2) {{
        for (uint t = LID_0; t < BLOCK / 2; t += LDIM_0) {{
            const uint i = 2 * t - (t & (step - 1)), j = i + step;
            if (i & size ? precedes(v, from, i, j, here, order) : precedes(v, from, j, i, here, order)) {{
                const {stored} v_i = v[i];
                const uint from_i = from[i];
                v[i] = v[j];
                from[i] = from[j];
                v[j] = v_i;
                from[j] = from_i;
            }}
        }}
        local_barrier();
    }}
for (uint i = LID_0; i < here; i += LDIM_0) {{
    z[at + i] = v[i];
#if PLACES
    q[at + i] = begin + from[i];
#endif
}}
}}
"""

MERGE = """
KERNEL void merge(ga_int given, ga_size rows, ga_size n, ga_size width, ga_size segment, ga_size keep, ga_size each,
    GLOBAL_MEM {stored} *x, ga_size x_off, GLOBAL_MEM {stored} *z, ga_size z_off
#if PLACES
    , GLOBAL_MEM ga_long *p, ga_size p_off, GLOBAL_MEM ga_long *q, ga_size q_off
#endif
    )
{{
x = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)x + x_off);
z = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)z + z_off);
#if PLACES
p = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)p + p_off);
q = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)q + q_off);
#endif
const int order = {order};
const ga_size per_row = (n + segment - 1) / segment;
const ga_size stop = min((get_global_id(0) + 1) * each, rows * per_row);
for (ga_size s = get_global_id(0) * each; s < stop; ++s) {{
    const ga_size row = s / per_row * n, begin = s % per_row * segment;
    const ga_size base = begin / (2 * width) * (2 * width);
    const ga_size gone = begin - base;
    if (gone >= keep)
        continue;
    const ga_size middle = min(base + width, n), limit = min(base + 2 * width, n);
    const ga_size left = row + base, right = row + middle;
    const ga_size n_left = min(middle - base, keep), n_right = min(limit - middle, keep);
    const ga_size end = min(min(gone + segment, keep), n_left + n_right);
    // Signed: the simulator does not know the subtraction that stops at 0.
    ga_size low = (ga_size)max((ga_ssize)gone - (ga_ssize)n_right, (ga_ssize)0), high = min(gone, n_left);
    while (low < high) {{
        const ga_size mid = (low + high) / 2;
        if (before(x[right + gone - 1 - mid], x[left + mid], order))
            high = mid;
        else
            low = mid + 1;
    }}
    ga_size i = low, j = gone - low, o = gone;
    while (o < end) {{
        // So many steps cannot run out of either run. They do not branch: nobody could foretell where to.
        const ga_size sure = min(min(n_left - i, n_right - j), end - o);
        for (const ga_size stop = o + sure; o < stop; ++o) {{
            const {stored} a = x[left + i], b = x[right + j];
            const int second = before(b, a, order);
            z[left + o] = second ? b : a;
#if PLACES
            q[left + o] = p[second ? right + j : left + i];
#endif
            i += 1 - second;
            j += second;
        }}
        if (i < n_left && j < n_right)
            continue;
        const ga_size rest = i < n_left ? left + i : right + j;
        const ga_size from = o;
        for (; o < end; ++o) {{
            z[left + o] = x[rest + o - from];
#if PLACES
            q[left + o] = p[rest + o - from];
#endif
        }}
    }}
}}
}}
"""
