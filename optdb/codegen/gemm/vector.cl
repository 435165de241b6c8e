/* Kernels for matrix-vector products, see vector.py, and for the sums of all products that are computed in parts. */

/* Store the sum of row i; the kernels below call this. */
void store_sum(W sum, ga_ssize i)
{
    if (parts > 1) {
        w[i] = sum;
    } else {
        W value = alpha * sum;
        if (add)
            value += beta * LOAD(y[i * y0]);
        z[i * z0] = STORE(value);
    }
}

OUTLINED_KERNEL void matvec_on_cpu(long16 s, W alpha, W beta, ARRAY T *a, ARRAY T *x, ARRAY T *y, ARRAY T *z,
    ARRAY W *w)
{
    const ga_ssize m = s.s0, a0 = s.s2, a1 = s.s3, x0 = s.s4, y0 = s.s5, z0 = s.s6, parts = s.s7;
    const bool add = s.s9;
    const ga_ssize part = get_group_id(1), l0 = part * s.s8, k = min(s.s1 - l0, s.s8);
    a += l0 * a1;
    x += l0 * x0;
    w += part * m;
    const ga_ssize i0 = get_global_id(0) * ROWS;
    const int rows = (int)min((ga_ssize)ROWS, m - i0);
    a += i0 * a0;
    W sums[ROWS];
    for (int r = 0; r < ROWS; ++r)
        sums[r] = 0;
    if (a0 == 1 && rows == ROWS) {
        for (ga_ssize l = 0; l < k; ++l) {
            const W right = LOAD(x[l * x0]);
            for (int r = 0; r < ROWS; ++r)
                sums[r] += LOAD(a[l * a1 + r]) * right;
        }
    } else {
        ga_ssize begin = 0;
        if (a1 == 1 && x0 == 1) {
            begin = k - k % 16;
            for (int r0 = 0; r0 < rows; r0 += 4) {  /* out-of-range rows are clamped to the last one */
                VECTOR acc[4];
                GLOBAL_MEM const MEMORY *row[4];
                UNROLLED(r, 4) {
                    acc[r] = 0;
                    row[r] = (GLOBAL_MEM const MEMORY *)(a + min(r0 + r, rows - 1) * a0);
                }
                for (ga_ssize l = 0; l < begin; l += 16) {
                    const VECTOR right = VLOAD(0, (GLOBAL_MEM const MEMORY *)x + l);
                    UNROLLED(r, 4)
                        acc[r] += VLOAD(0, row[r] + l) * right;
                }
                for (int r = 0; r < 4 && r0 + r < rows; ++r) {
                    W lanes[16];
                    vstore16(acc[r], 0, lanes);
                    for (int v = 0; v < 16; ++v)
                        sums[r0 + r] += lanes[v];
                }
            }
        }
        for (int r = 0; r < rows; ++r)
            for (ga_ssize l = begin; l < k; ++l)
                sums[r] += LOAD(a[r * a0 + l * a1]) * LOAD(x[l * x0]);
    }
    for (int r = 0; r < rows; ++r) {
        const ga_ssize i = i0 + r;
        const W sum = sums[r];
        STORE_SUM
    }
}

/* For GPUs: `lanes` items add up the terms of a row; each item works on EACH rows, and loads BATCH terms at once.
Out-of-range rows are clamped. */
OUTLINED_KERNEL void matvec_along(long16 s, W alpha, W beta, ARRAY T *a, ARRAY T *x, ARRAY T *y, ARRAY T *z,
    ARRAY W *w)
{
    const ga_ssize m = s.s0, a0 = s.s2, a1 = s.s3, x0 = s.s4, y0 = s.s5, z0 = s.s6, parts = s.s7;
    const bool add = s.s9;
    const int lanes = (int)s.sA, rows = ITEMS / lanes;
    const ga_ssize part = get_group_id(1), l0 = part * s.s8, k = min(s.s1 - l0, s.s8);
    w += part * m;
    __local W found[EACH * (ITEMS + ITEMS / 2)];
    const int item = get_local_id(0), lane = item % lanes, row = item / lanes;
    const ga_ssize first = get_group_id(0) * rows * EACH, a_step = lanes * a1, x_step = lanes * x0;
    GLOBAL_MEM const T *at[EACH];
    W sums[EACH];
    UNROLLED(r, EACH) {
        at[r] = a + min(first + r * rows + row, m - 1) * a0 + l0 * a1;
        sums[r] = 0;
    }
    x += l0 * x0;
    ga_ssize l = lane;
    if (BATCH > 1) {
        /* Pointers take fewer registers than the products of steps. */
        GLOBAL_MEM const T *left[EACH], *right = x + l * x0;
        UNROLLED(r, EACH)
            left[r] = at[r] + l * a1;
        for (; l + (BATCH - 1) * lanes < k; l += BATCH * lanes) {
            W few[BATCH][EACH], by[BATCH];
            UNROLLED(u, BATCH) {
                by[u] = LOAD(*right);
                right += x_step;
                UNROLLED(r, EACH) {
                    few[u][r] = LOAD(*left[r]);
                    left[r] += a_step;
                }
            }
            UNROLLED(u, BATCH)
                UNROLLED(r, EACH)
                    sums[r] += few[u][r] * by[u];
        }
    }
    for (; l < k; l += lanes) {
        const ga_ssize offset = l * a1;
        const W by = LOAD(x[l * x0]);
        UNROLLED(r, EACH)
            sums[r] += LOAD(at[r][offset]) * by;
    }
    const int width = lanes + (lanes > 1);  /* an odd width avoids bank conflicts */
    UNROLLED(r, EACH)
        found[(r * rows + row) * width + lane] = sums[r];
    int sums_left = lanes;
    for (; sums_left > 16; sums_left /= 2) {
        local_barrier();
        if (lane < sums_left / 2)
            UNROLLED(r, EACH) {
                const int here = (r * rows + row) * width + lane;
                found[here] += found[here + sums_left / 2];
            }
    }
    local_barrier();
    for (int r = item; r < EACH * rows; r += ITEMS) {
        const ga_ssize i = first + r;
        W sum = 0;
        for (int n = 0; n < sums_left; ++n)
            sum += found[r * width + n];
        if (i < m) {
            STORE_SUM
        }
    }
}

/* For GPUs, if columns are contiguous: an item adds up some terms of one row, and `near` neighbours read a column. */
OUTLINED_KERNEL void matvec_across(long16 s, W alpha, W beta, ARRAY T *a, ARRAY T *x, ARRAY T *y, ARRAY T *z,
    ARRAY W *w)
{
    const ga_ssize m = s.s0, a0 = s.s2, a1 = s.s3, x0 = s.s4, y0 = s.s5, z0 = s.s6, parts = s.s7;
    const bool add = s.s9;
    const int near = (int)s.sA, columns = ITEMS / near;
    const ga_ssize part = get_group_id(1), l0 = part * s.s8, k = min(s.s1 - l0, s.s8);
    w += part * m;
    __local W found[ITEMS];
    const int item = get_local_id(0), row = item % near, column = item / near;
    const ga_ssize i = get_group_id(0) * near + row;
    GLOBAL_MEM const T *at = a + i * a0 + (l0 + column) * a1, *right = x + (l0 + column) * x0;
    const ga_ssize a_step = columns * a1, x_step = columns * x0;
    ga_ssize l = column < columns && i < m ? column : k;
    W sum = 0;
    for (; l + (BATCH - 1) * columns < k; l += BATCH * columns) {
        W few[BATCH], by[BATCH];
        UNROLLED(u, BATCH) {
            few[u] = LOAD(*at);
            by[u] = LOAD(*right);
            at += a_step;
            right += x_step;
        }
        UNROLLED(u, BATCH)
            sum += few[u] * by[u];
    }
    for (; l < k; l += columns, at += a_step, right += x_step)
        sum += LOAD(*at) * LOAD(*right);
    found[item] = sum;
    local_barrier();
    if (column == 0 && i < m) {
        for (int c = 1; c < columns; ++c)
            sum += found[c * near + row];
        STORE_SUM
    }
}

/* Add up the partial sums of a GPU's product; 32 items add up those of one row. */
KERNEL void matvec_total(long16 s, W alpha, W beta, ARRAY T *y, ARRAY T *z, ARRAY W *w)
{
    const ga_ssize m = s.s0, y0 = s.s1, z0 = s.s2, count = s.s3, parts = 1;
    const bool add = s.s4;
    const int near = ITEMS / 32;
    __local W found[ITEMS];
    const int item = get_local_id(0), lane = item / near;
    const ga_ssize i = get_group_id(0) * near + item % near;
    W sum = 0;
    if (i < m) {
        #pragma unroll 8
        for (ga_ssize p = lane; p < count; p += 32)
            sum += w[p * m + i];
    }
    found[item] = sum;
    for (int reach = 16; reach > 0; reach /= 2) {
        local_barrier();
        if (lane < reach)
            found[item] += found[item + reach * near];
    }
    if (lane == 0 && i < m) {
        sum = found[item];
        STORE_SUM
    }
}

/* Add up the partial sums of a product, WIDE neighbours in a row at a time. */
KERNEL void matmul_total(long16 s, long16 t, W alpha, W beta, ARRAY T *y, ARRAY T *z, ARRAY W *w)
{
    const ga_ssize m = s.s0, n = s.s1, parts = s.s2, size = s.s3, items = s.s5, items_of_row = s.s6;
    const ga_ssize item = get_global_id(0);
    if (item >= items)
        return;
    /* The division takes as long as everything else, and 64-bit divisions take longer. */
    const ga_ssize row = items >> 32 ? item / items_of_row : (ga_ssize)((uint)item / (uint)items_of_row);
    const ga_ssize batch = size == m * n ? 0 : row / m, i = row - batch * m, y_step = t.s2, z_step = t.s5;
    const ga_ssize j = (item - row * items_of_row) * WIDE;
    const bool add = s.s4;
    y += t.s6 + batch * t.s0 + i * t.s1 + j * y_step;
    z += t.s7 + batch * t.s3 + i * t.s4 + j * z_step;
    w += t.s8 + row * n + j;
    const int there = (int)min((ga_ssize)WIDE, n - j);
    W sum[WIDE], added[WIDE];
    /* Load the addends together with the parts. */
    UNROLLED(e, WIDE) {
        sum[e] = 0;
        added[e] = 0;
    }
    const bool adds_whole = STORES_WHOLE && there == WIDE && y_step == 1 && (size_t)y % sizeof(WORDS) == 0;
    if (add && adds_whole)
        VSTORE(*(GLOBAL_MEM const WORDS *)y, 0, added);
    if (add && !adds_whole) {
        UNROLLED(e, WIDE)
            added[e] = e < there ? LOAD(y[e * y_step]) : 0;
    }
    if (there == WIDE && size % WIDE == 0 && (size_t)w % sizeof(WORDS) == 0) {
        #pragma unroll 4
        for (ga_ssize p = 0; p < parts; ++p) {
            W few[WIDE];
            VSTORE(*(GLOBAL_MEM const WORDS *)(w + p * size), 0, few);
            UNROLLED(e, WIDE)
                sum[e] += few[e];
        }
    } else {
        for (ga_ssize p = 0; p < parts; ++p)
            UNROLLED(e, WIDE)
                sum[e] += e < there ? w[p * size + e] : 0;
    }
    UNROLLED(e, WIDE) {
        sum[e] *= alpha;
        if (add)
            sum[e] += beta * added[e];
    }
#if STORES_WHOLE
    if (there == WIDE && z_step == 1 && (size_t)z % sizeof(WORDS) == 0) {
        *(GLOBAL_MEM WORDS *)z = VLOAD(0, sum);
        return;
    }
#endif
    UNROLLED(e, WIDE)
        if (e < there)
            z[e * z_step] = STORE(sum[e]);
}
