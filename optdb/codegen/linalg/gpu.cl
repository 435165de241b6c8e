/* Kernels for blocks of matrices on a GPU: a group processes a block of LEAF rows, a power of two, in local memory. */

/* As in cpu.cl. A group may have any number of items. */
KERNEL void cholesky_leaf(ga_size count, ga_size n, ga_size begin, ga_size whole,
    ARRAY T *x, ga_ssize xb, ga_ssize x0, ga_ssize x1, ARRAY T *z, ga_ssize zb, ga_ssize z0, ga_ssize z1,
    ARRAY ga_int *info)
{
    LOCAL_MEM W l[LEAF][LEAF + 1];
    const int side = (int)n, lane = (int)LID_0, lanes = (int)LDIM_0;
    /* Neighbouring items read neighbouring elements. */
    const bool down = x0 == 1, z_down = z0 == 1;
    x += (ga_ssize)GID_0 * xb;
    z += (ga_ssize)GID_0 * zb;
    for (int at = lane; at < LEAF * LEAF; at += lanes) {
        const int i = down ? at % LEAF : at / LEAF, k = down ? at / LEAF : at % LEAF;
        l[i][k] = i < side && k <= i ? x[i * x0 + k * x1] : (W)(i == k);
    }
    local_barrier();
    int failed = 0;
    for (int k = 0; k < side; ++k) {
        const W pivot = l[k][k];
        const bool positive = pivot > 0 && pivot < (W)INFINITY;
        failed = failed || positive ? failed : k + 1;
        const W root = positive ? sqrt(pivot) : (W)NAN;
        local_barrier();
        for (int i = k + lane; i < side; i += lanes)
            l[i][k] = i == k ? root : l[i][k] / root;
        local_barrier();
        for (int at = (k + 1) * LEAF + lane; at < side * LEAF; at += lanes) {
            const int i = at / LEAF, j = at % LEAF;
            if (j > k && j <= i)
                l[i][j] -= l[i][k] * l[j][k];
        }
        local_barrier();
    }
    if (lane == 0) {
        if (whole)
            info[GID_0] = failed;
        else if (failed && !info[GID_0])
            info[GID_0] = (int)begin + failed;
    }
    for (int at = lane; at < LEAF * LEAF; at += lanes) {
        const int i = z_down ? at % LEAF : at / LEAF, k = z_down ? at / LEAF : at % LEAF;
        if (i < side && k < side && (whole || k <= i))
            z[i * z0 + k * z1] = whole && failed ? (W)NAN : k <= i ? l[i][k] : (W)0;
    }
}

/* As in cpu.cl: a group processes a tile, and an item one right-hand side. */
KERNEL void solve_leaf(ga_size count, ga_size tiles, ga_size m, ga_size n, ga_size unit,
    ARRAY T *t, ga_ssize tb, ga_ssize t0, ga_ssize t1, ARRAY T *z, ga_ssize zb, ga_ssize z0, ga_ssize z1)
{
    LOCAL_MEM W l[LEAF][LEAF + 1];
    const int side = (int)n, lane = (int)LID_0, lanes = (int)LDIM_0;
    const ga_ssize batch = GID_0 / tiles, column = (ga_ssize)(GID_0 % tiles) * lanes + lane;
    const bool down = t0 == 1;
    t += batch * tb;
    z += batch * zb + column * z1;
    for (int at = lane; at < LEAF * LEAF; at += lanes) {
        const int i = down ? at % LEAF : at / LEAF, k = down ? at / LEAF : at % LEAF;
        l[i][k] = i < side && (k < i || (k == i && !unit)) ? t[i * t0 + k * t1] : (W)(i == k);
    }
    local_barrier();
    if (column >= m)
        return;
    W x[LEAF];
    UNROLLED(i, LEAF)
        x[i] = i < side ? z[i * z0] : (W)0;
    UNROLLED(k, LEAF) {
        x[k] /= l[k][k];
        UNROLLED_RANGE(i, k + 1, LEAF, 1)
            x[i] -= l[i][k] * x[k];
    }
    UNROLLED(i, LEAF)
        if (i < side)
            z[i * z0] = x[i];
}
