/* Kernels for gradients for filters, see products.py. */

/* For CPUs. Rows of pixels are numbered across all images. Out-of-range taps of a block are clamped to the last one. */
OUTLINED_KERNEL void weights_blocks(ga_size depth, ga_size groups, ga_size features, ga_size padded, ga_size rows,
    ga_size rows_each, ga_size rows_near, ga_size tile_chunk, ga_size fresh, ga_size out0, ga_size out1, ga_size out2,
    ga_size extent1, ga_size extent2, ga_size x_image, ga_size x_group, ARRAY W *x, ARRAY W *t, ARRAY ga_long *offsets,
    ARRAY ga_long *pixels, ARRAY W *parts)
{
    const ga_size part = get_global_id(1), row_first = part * rows_each, row_last = min(row_first + rows_each, rows);
    const ga_size k_blocks = (depth + BLOCK - 1) / BLOCK, f_blocks = padded / WIDTH;
    const ga_size tile_first = get_global_id(0) * tile_chunk;
    const ga_size tile_last = min(tile_first + tile_chunk, groups * k_blocks * f_blocks);
    const ga_size pixel = groups * padded;
    for (ga_size near = row_first; near < row_last; near += rows_near) {
        const ga_size near_last = min(near + rows_near, row_last);
        for (ga_size tile = tile_first; tile < tile_last; ++tile) {
            const ga_size f = tile % f_blocks * WIDTH, k = tile / f_blocks % k_blocks * BLOCK;
            const ga_size group = tile / f_blocks / k_blocks;
            GLOBAL_MEM W *sums = parts + ((part * groups + group) * depth + k) * padded + f;
            const int some = (int)min((ga_size)BLOCK, depth - k);
            const int begins = fresh && near == row_first;
            VECTOR acc[BLOCK];
            ga_long offset[BLOCK];
            UNROLLED(j, BLOCK) {
                offset[j] = offsets[min(k + j, depth - 1)];
                acc[j] = begins || j >= some ? 0 : VLOAD(0, sums + j * padded);
            }
            for (ga_size row = near; row < near_last; ++row) {
                const ga_size image = row / (out0 * out1), i0 = row / out1 % out0, i1 = row % out1;
                const GLOBAL_MEM W *from = x + image * x_image + group * x_group + (i0 * extent1 + i1) * extent2;
                const GLOBAL_MEM W *by = t + row * out2 * pixel + group * padded + f;
                for (ga_size i2 = 0; i2 < out2; ++i2) {
                    const VECTOR right = VLOAD(0, by + i2 * pixel);
                    UNROLLED(j, BLOCK)
                        acc[j] += from[offset[j] + i2] * right;
                }
            }
            UNROLLED(j, BLOCK)
                if (j < some)
                    VSTORE(acc[j], 0, sums + j * padded);
        }
    }
}

/* One feature, one channel and one tap at a time, for all devices. */
KERNEL void weights_few(ga_size depth, ga_size groups, ga_size features, ga_size padded, ga_size rows,
    ga_size rows_each, ga_size rows_near, ga_size tile_chunk, ga_size fresh, ga_size out0, ga_size out1, ga_size out2,
    ga_size extent1, ga_size extent2, ga_size x_image, ga_size x_group, ARRAY W *x, ARRAY T *t, ARRAY ga_long *offsets,
    ARRAY ga_long *pixels, ARRAY W *parts)
{
    const ga_size part = get_global_id(1), row_first = part * rows_each, row_last = min(row_first + rows_each, rows);
    const ga_size tile_first = get_global_id(0) * tile_chunk;
    const ga_size tile_last = min(tile_first + tile_chunk, groups * depth * features);
    if (row_first >= rows)
        return;
    for (ga_size tile = tile_first; tile < tile_last; ++tile) {
        const ga_size f = tile % features, k = tile / features % depth, group = tile / features / depth;
        W sum = 0;
#if ON_CPU
        VECTOR acc = 0;
#endif
        for (ga_size row = row_first; row < row_last; ++row) {
            const ga_size image = row / (out0 * out1), at = row % (out0 * out1), i0 = at / out1, i1 = at % out1;
            const GLOBAL_MEM W *from = x + image * x_image + group * x_group + (i0 * extent1 + i1) * extent2;
            const GLOBAL_MEM T *by = t + (((image * groups + group) * features + f) * out0 * out1 + at) * out2;
            ga_size i2 = 0;
#if ON_CPU
            for (; i2 + WIDTH <= out2; i2 += WIDTH)
                acc += VLOAD(0, from + offsets[k] + i2) * VLOAD_T(0, by + i2);
#endif
            for (; i2 < out2; ++i2)
                sum += from[offsets[k] + i2] * LOAD(by[i2]);
        }
#if ON_CPU
        W lanes[WIDTH];
        VSTORE(acc, 0, lanes);
        for (int i = 0; i < WIDTH; ++i)
            sum += lanes[i];
#endif
        GLOBAL_MEM W *to = parts + part * groups * depth * padded + (group * depth + k) * padded + f;
        *to = fresh ? sum : *to + sum;
    }
}

/* A line is a square of sums, taps by features: parts have contiguous features, and filters have contiguous taps. */
OUTLINED_KERNEL void add_up(ga_size lines, ga_size chunk, ga_size count, ga_size depth, ga_size groups,
    ga_size features, ga_size padded, ARRAY W *parts, ARRAY T *z)
{
    const ga_size first = get_global_id(0) * chunk, last = min(first + chunk, lines);
    const ga_size k_lines = (depth + SQUARE - 1) / SQUARE, f_lines = (features + SQUARE - 1) / SQUARE;
    for (ga_size line = first; line < last; ++line) {
        const ga_size f = line % f_lines * SQUARE, k = line / f_lines % k_lines * SQUARE;
        const ga_size group = line / f_lines / k_lines;
        const int f_some = (int)min((ga_size)SQUARE, features - f), k_some = (int)min((ga_size)SQUARE, depth - k);
        W sums[SQUARE][SQUARE];
        for (int i = 0; i < k_some; ++i) {
            const GLOBAL_MEM W *from = parts + (group * depth + k + i) * padded + f;
            for (int j = 0; j < f_some; ++j)
                sums[i][j] = from[j];
            for (ga_size part = 1; part < count; ++part) {
                from += groups * depth * padded;
                for (int j = 0; j < f_some; ++j)
                    sums[i][j] += from[j];
            }
        }
        GLOBAL_MEM T *to = z + (group * features + f) * depth + k;
        for (int j = 0; j < f_some; ++j)
            for (int i = 0; i < k_some; ++i)
                to[j * depth + i] = STORE(sums[i][j]);
    }
}
