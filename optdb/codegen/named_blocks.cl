/* Products with blocks of a matrix that tables select, see named_blocks.py. The tables contain offsets in elements.

WIDTH columns are computed at a time. */

/* o has `windows` rows for each item of a batch. A product's block starts in w at its offset ins plus outs. */
OUTLINED_KERNEL void block_products(ga_size items, ga_size pieces, ga_size columns, ga_size products, ga_size depth,
    ga_size windows, ARRAY T *o, ga_ssize o0, ga_ssize o1, ga_ssize o2, ARRAY T *w, ga_ssize w2, ga_ssize w3,
    ARRAY T *h, ga_ssize h0, ga_ssize h1, ga_ssize h2, ARRAY ga_long *ins, ARRAY ga_long *outs)
{
    for (ga_size item = get_global_id(0); item < items; item += get_global_size(0)) {
        const ga_size row = item / pieces, first = item % pieces * WIDTH;
        const ga_size many = min((ga_size)WIDTH, columns - first);
        const ga_size batch = row / windows;
        GLOBAL_MEM T *out = o + (ga_ssize)batch * o0 + (ga_ssize)(row % windows) * o1 + (ga_ssize)first * o2;
        W sums[WIDTH];
        for (int c = 0; c < WIDTH; ++c)
            sums[c] = 0;
        for (ga_size i = 0; i < products; ++i) {
            GLOBAL_MEM T *block = w + ins[batch * products + i] + outs[row] + (ga_ssize)first * w3;
            for (ga_size k = 0; k < depth; ++k) {
                const W by = LOAD(h[(ga_ssize)batch * h0 + (ga_ssize)i * h1 + (ga_ssize)k * h2]);
                for (int c = 0; c < many; ++c)
                    sums[c] += by * LOAD(block[(ga_ssize)k * w2 + c * w3]);
            }
        }
        for (int c = 0; c < many; ++c)
            out[c * o2] = STORE(LOAD(out[c * o2]) + sums[c]);
    }
}

/* blocks: the offset of each block in o; starts: its first product in xs and ys, which have the offsets of rows. */
OUTLINED_KERNEL void outer_products(ga_size items, ga_size rows, ga_size columns, ARRAY T *o, ga_ssize o2, ga_ssize o3,
    ARRAY T *x, ga_ssize x2, ARRAY T *y, ga_ssize y2,
    ARRAY ga_long *blocks, ARRAY ga_long *starts, ARRAY ga_long *xs, ARRAY ga_long *ys)
{
    for (ga_size item = get_global_id(0); item < items; item += get_global_size(0)) {
        const ga_ssize column = item % columns, row = item / columns % rows;
        const ga_size block = item / (rows * columns);
        GLOBAL_MEM T *out = o + blocks[block] + row * o2 + column * o3;
        W sum = LOAD(*out);
        for (ga_long m = starts[block]; m < starts[block + 1]; ++m)
            sum += LOAD(x[xs[m] + row * x2]) * LOAD(y[ys[m] + column * y2]);
        *out = STORE(sum);
    }
}
