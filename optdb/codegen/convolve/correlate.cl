/* Kernels that multiply filters by images, see products.py. */

/* For CPUs. Vectors are numbered across all images. Out-of-range vectors are clamped on load and not stored. */
OUTLINED_KERNEL void CORRELATE(ga_size depth, ga_size rows, ga_size blocks, ga_size images, ga_size groups,
    ga_size vectors, ga_size vector_chunk, ga_size block_chunk, ga_size x_image, ga_size x_group, ga_size plane,
    ARRAY W *x, ARRAY W *w, ARRAY ga_long *offsets, ARRAY ga_long *starts, ARRAY ga_long *runs, ARRAY ga_long *targets,
    ARRAY T *z)
{
    const ga_size all = images * vectors, group = get_global_id(2);
    const ga_size v_first = get_global_id(0) * vector_chunk, v_last = min(v_first + vector_chunk, all);
    const ga_size b_first = get_global_id(1) * block_chunk, b_last = min(b_first + block_chunk, blocks);
    x += group * x_group;
    z += group * rows * plane;
    w += group * blocks * depth * ROWS;
    for (ga_size b = b_first; b < b_last; ++b)
        for (ga_size v = v_first; v < v_last; v += VECTORS) {
            VECTOR acc[ROWS][VECTORS];
            const GLOBAL_MEM W *from[VECTORS];
            UNROLLED(c, VECTORS) {
                const ga_size u = min(v + c, v_last - 1);
                from[c] = x + u / vectors * x_image + starts[u % vectors];
                UNROLLED(r, ROWS)
                    acc[r][c] = 0;
            }
            const GLOBAL_MEM W *left = w + b * depth * ROWS;
            for (ga_size k = 0; k < depth; ++k) {
                const ga_long offset = offsets[k];
                VECTOR right[VECTORS];
                UNROLLED(c, VECTORS)
                    right[c] = VLOAD(0, from[c] + offset);
                UNROLLED(r, ROWS) {
                    const W a = left[k * ROWS + r];
                    UNROLLED(c, VECTORS)
                        acc[r][c] += a * right[c];
                }
            }
            const int some = (int)min((ga_size)ROWS, rows - b * ROWS);
            for (int c = 0; c < VECTORS && v + c < v_last; ++c) {
                const ga_size u = (v + c) % vectors;
                GLOBAL_MEM T *to = z + ((v + c) / vectors * groups * rows + b * ROWS) * plane;
                if (runs[u] >= 0) {
                    for (int r = 0; r < some; ++r)
                        VSTORE_T(acc[r][c], 0, to + r * plane + runs[u]);
                    continue;
                }
                const GLOBAL_MEM ga_long *at = targets + u * WIDTH;
                for (int r = 0; r < some; ++r) {
                    W lanes[WIDTH];
                    VSTORE(acc[r][c], 0, lanes);
                    for (int i = 0; i < WIDTH; ++i)
                        if (at[i] >= 0)
                            to[r * plane + at[i]] = STORE(lanes[i]);
                }
            }
        }
}

/* For GPUs. */
KERNEL void correlate_few(ga_size depth, ga_size rows, ga_size blocks, ga_size images, ga_size groups, ga_size vectors,
    ga_size vector_chunk, ga_size block_chunk, ga_size x_image, ga_size x_group, ga_size plane, ARRAY W *x, ARRAY W *w,
    ARRAY ga_long *offsets, ARRAY ga_long *starts, ARRAY ga_long *runs, ARRAY ga_long *targets, ARRAY T *z)
{
    const ga_size column = get_global_id(0), row = get_global_id(1) % rows, group = get_global_id(1) / rows;
    if (column >= images * vectors || group >= groups)
        return;
    const ga_size image = column / vectors, v = column % vectors;
    const GLOBAL_MEM W *from = x + group * x_group + image * x_image + starts[v];
    w += (group * rows + row) * depth;
    W sum = 0;
    for (ga_size k = 0; k < depth; ++k)
        sum += w[k] * from[offsets[k]];
    z[((image * groups + group) * rows + row) * plane + targets[v]] = STORE(sum);
}
