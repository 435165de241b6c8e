/* Kernels for matrix-vector products, see vector.py. */

/* Store the sum of row i; both kernels below call this. */
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

OUTLINED_KERNEL void matvec_on_gpu(long16 s, W alpha, W beta, ARRAY T *a, ARRAY T *x, ARRAY T *y, ARRAY T *z,
    ARRAY W *w)
{
    const ga_ssize m = s.s0, a0 = s.s2, a1 = s.s3, x0 = s.s4, y0 = s.s5, z0 = s.s6, parts = s.s7;
    const bool add = s.s9, along = s.sA;
    const ga_ssize part = get_group_id(1), l0 = part * s.s8, k = min(s.s1 - l0, s.s8);
    a += l0 * a1;
    x += l0 * x0;
    w += part * m;
    __local W found[NEAR * FAR];
    const int near = get_local_id(0) % NEAR, far = get_local_id(0) / NEAR;
    const int lane = along ? near : far, lanes = along ? NEAR : FAR, row = along ? far : near;
    const ga_ssize i = get_group_id(0) * (along ? FAR : NEAR) + row;
    W sum = 0;
    if (i < m)
        for (ga_ssize l = lane; l < k; l += lanes)
            sum += LOAD(a[i * a0 + l * a1]) * LOAD(x[l * x0]);
    found[row * lanes + lane] = sum;
    for (int reach = lanes / 2; reach > 0; reach /= 2) {
        local_barrier();
        if (lane < reach)
            found[row * lanes + lane] += found[row * lanes + lane + reach];
    }
    if (i < m && lane == 0) {
        sum = found[row * lanes];
        STORE_SUM
    }
}

/* Add up partial sums of matrix-vector products and of matrix products. */
KERNEL void matmul_total(long16 s, long16 t, W alpha, W beta, ARRAY T *y, ARRAY T *z, ARRAY W *w)
{
    const ga_ssize m = s.s0, n = s.s1, parts = s.s2, size = s.s3, row = get_global_id(1);
    if (row * n >= size)
        return;
    const ga_ssize batch = row / m, i = row % m;
    const bool add = s.s4;
    y += t.s0 + batch * t.s1 + i * t.s2;
    z += t.s4 + batch * t.s5 + i * t.s6;
    w += s.s5 + row * n;
    for (ga_ssize j = get_global_id(0); j < n; j += get_global_size(0)) {
        W sum = 0;
        for (ga_ssize p = 0; p < parts; ++p)
            sum += w[p * size + j];
        sum *= alpha;
        if (add)
            sum += beta * LOAD(y[j * t.s3]);
        z[j * t.s7] = STORE(sum);
    }
}
