/* Kernels for GPUs that multiply matrices whose elements are read directly from images, see tile_kernels.py. */

/* Macros for the positions of an item's sums in a tile, and of vectors of a tile in local memory. An item's contiguous
   rows and columns are one vector load long, except in fragments, of 16 rows and 8 columns, that 32 items share. */
void positions()
{
#if IS_TENSOR
#define FIRST_ROW (item / 32 % (ROWS / (8 * ITEM_ROWS)) * (8 * ITEM_ROWS))
#define FIRST_COLUMN (item / 32 / (ROWS / (8 * ITEM_ROWS)) * (4 * ITEM_COLS))
#define ROW(r) (i0 + FIRST_ROW + (r) * 8 + ty)
#define COLUMN(c) (FIRST_COLUMN + (c) / 2 * 8 + tx * 2)
#define VECTOR_OF(tile, at) (*(__local VEC *)&(tile)[(at) / (ROWS / 4)][(at) % (ROWS / 4) * 4])
#define WORD_OF_VECTOR(at) ((at) / (ROWS / 4) * (ROWS + PADDING) + (at) % (ROWS / 4) * 4)
#else
#define ROW(r) (i0 + (r) / WIDE * (WIDE * (ROWS / ITEM_ROWS)) + ty * WIDE + (r) % WIDE)
#define COLUMN(c) ((c) * (COLS / ITEM_COLS) + tx * WIDE)
#define VECTOR_OF(tile, at) ((__local VEC *)(tile))[at]
#define WORD_OF_VECTOR(at) ((at) * WIDE)
#endif
}

/* Filters by outputs, summed over a part of the terms. A term is an offset and the bit of a tap; terms are loaded one
   tile ahead. A spot is the index that an output reads from, and the bits of the taps inside the image there. */
__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
KERNEL void CORRELATE(ga_int depth, ga_int rows, ga_int columns, ga_int outputs, ga_int in_order, ga_int each,
    ga_size x_image, ga_size x_group, ga_size plane, ga_size z_part, ARRAY W *x, ARRAY W *w, ARRAY ga_int *terms, ARRAY ga_int *spots,
    ARRAY ga_int *targets, ARRAY T *z)
{
    SHARED
    __local W left[SIDES][DEPTH][ROWS + TENSOR_PADDING] __attribute__((aligned(16)));
    __local W right[SIDES][DEPTH][COLS + TENSOR_PADDING] __attribute__((aligned(16)));
    const int item = get_local_id(0), tx = TX, ty = TY, blocks = (rows + ROWS - 1) / ROWS;
    const int block = get_group_id(0) % blocks, i0 = block * ROWS, j0 = (int)(get_group_id(0) / blocks) * COLS;
    const ga_size group = get_group_id(1), groups = get_num_groups(1);
    const int part = get_group_id(2) * each, end = min(part + each, depth);
    /* A part without terms still loads some, but adds none. */
    const int begin = min(part, depth - DEPTH);
    const int lane = item % LANES, first = item / LANES * X_TERMS;
    const GLOBAL_MEM VEC *filters = (const GLOBAL_MEM VEC *)(w + ((group * blocks + block) * depth + begin) * ROWS) + item;
    const GLOBAL_MEM int4 *pairs = (const GLOBAL_MEM int4 *)terms + (begin + first) / 2;
    const GLOBAL_MEM W *from[COLS / LANES];
    int inside[COLS / LANES];
    UNROLLED(c, COLS / LANES) {
        const int column = j0 + lane + c * LANES;
        from[c] = x + group * x_group;
        inside[c] = 0;
        if (column < columns) {
            const int2 spot = ((const GLOBAL_MEM int2 *)spots)[column % outputs];
            from[c] += (ga_size)(column / outputs) * x_image + spot.s0;
            inside[c] = spot.s1;
        }
    }
    W acc[ITEM_ROWS][ITEM_COLS];
    UNROLLED(r, ITEM_ROWS) UNROLLED(c, ITEM_COLS)
        acc[r][c] = 0;

    /* The offsets and taps of the next terms to load. */
    int4 pair[X_TERMS / 2];
#define LOAD_PAIRS \
    UNROLLED(v, X_TERMS / 2) \
        pair[v] = pairs[v]; \
    pairs += DEPTH / 2;
    LOAD_PAIRS
    const int count = end - part;
#if IS_COPIED
    /* Tiles are copied asynchronously, some steps ahead. */
    MEMORY left_memory = (MEMORY)ADDRESS_OF left;
    MEMORY right_memory = (MEMORY)ADDRESS_OF right;
#define COPY_TILES(side) \
    UNROLLED(v, W_LOADS) \
        if ((v + 1) * ITEMS <= W_VECS || item + v * ITEMS < W_VECS) \
            copy_async_all(left_memory, (side) * (DEPTH * (ROWS + TENSOR_PADDING)) + WORD_OF_VECTOR(item + v * ITEMS), \
                           filters + v * ITEMS); \
    filters += W_VECS; \
    UNROLLED(v, X_TERMS) { \
        const int2 term = v % 2 ? pair[v / 2].hi : pair[v / 2].lo; \
        const uint number = ((side) * DEPTH + first + v) * (COLS + TENSOR_PADDING) + lane; \
        UNROLLED(c, COLS / LANES) \
            copy_number_float32(right_memory, number + c * LANES, from[c] + term.s0, term.s1 & inside[c]); \
    } \
    LOAD_PAIRS

    UNROLLED(s, SIDES - 1) {
        if (s == 0 || count > s * DEPTH) {
            COPY_TILES(s)
        }
        commit_copies();
    }
    int side = 0, next = SIDES - 1;
    for (int rest = count; rest > 0; rest -= DEPTH) {
        await_copies();
        if (rest > (SIDES - 1) * DEPTH) {
            COPY_TILES(next)
        }
        commit_copies();
        MULTIPLY
        side = side == SIDES - 1 ? 0 : side + 1;
        next = next == SIDES - 1 ? 0 : next + 1;
    }
#else
    VEC w_next[W_LOADS];
    W x_next[COLS / LANES][X_TERMS];
#define LOAD_TILES \
    UNROLLED(v, W_LOADS) \
        if ((v + 1) * ITEMS <= W_VECS || item + v * ITEMS < W_VECS) \
            w_next[v] = filters[v * ITEMS]; \
    filters += W_VECS; \
    UNROLLED_RANGE(v, 0, X_TERMS, 2) \
        UNROLLED(c, COLS / LANES) { \
            x_next[c][v] = pair[v / 2].s1 & inside[c] ? from[c][pair[v / 2].s0] : 0; \
            x_next[c][v + 1] = pair[v / 2].s3 & inside[c] ? from[c][pair[v / 2].s2] : 0; \
        } \
    LOAD_PAIRS
#define KEEP_TILES(side) \
    UNROLLED(v, W_LOADS) \
        if ((v + 1) * ITEMS <= W_VECS || item + v * ITEMS < W_VECS) \
            VECTOR_OF(left[side], item + v * ITEMS) = w_next[v]; \
    UNROLLED(v, X_TERMS) UNROLLED(c, COLS / LANES) \
        right[side][first + v][lane + c * LANES] = x_next[c][v];

    TILE_LOOP
#endif
    const int vectors = SAME && in_order && outputs % WIDE == 0 && ((ga_size)z & 15) == 0;
    z += group * rows * plane + get_group_id(2) * z_part;
    UNROLLED_RANGE(c, 0, ITEM_COLS, WIDE) {
        const int j = j0 + COLUMN(c);
        if (vectors) {
            if (j >= columns)
                continue;
            GLOBAL_MEM T *to = z + (ga_size)(j / outputs) * groups * rows * plane + j % outputs;
            UNROLLED(r, ITEM_ROWS)
                if (ROW(r) < rows)
                    *(GLOBAL_MEM STORED *)(to + ROW(r) * plane) = (STORED)(STORED_SUMS);
            continue;
        }
        UNROLLED_RANGE(d, c, c + WIDE, 1) {
            if (j + d - c >= columns)
                continue;
            const int spot = (j + d - c) % outputs;
            GLOBAL_MEM T *to = z + (ga_size)((j + d - c) / outputs) * groups * rows * plane + targets[spot];
            UNROLLED(r, ITEM_ROWS)
                if (ROW(r) < rows)
                    to[ROW(r) * plane] = STORE(acc[r][d]);
        }
    }
}

/* Features by terms, summed over one part of all images' pixels. */
__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
KERNEL void WEIGHTS(ga_int depth, ga_int features, ga_int outputs, ga_int fresh, ga_int pixels, ga_int each,
    ga_size x_image, ga_size x_group, ARRAY W *x, ARRAY T *t, ARRAY ga_int *terms, ARRAY ga_int *spots, ARRAY W *sums)
{
    SHARED
    __local W left[SIDES][DEPTH][ROWS + PADDING] __attribute__((aligned(16)));
    __local W right[SIDES][DEPTH][COLS + PADDING] __attribute__((aligned(16)));
    const int item = get_local_id(0), tx = TX, ty = TY, blocks = (features + ROWS - 1) / ROWS;
    const int i0 = get_group_id(0) % blocks * ROWS, j0 = (int)(get_group_id(0) / blocks) * COLS;
    const ga_size group = get_group_id(1), groups = get_num_groups(1), part = get_group_id(2);
    const int lane = item % DEPTH, first = item / DEPTH;
    const int begin = part * each, stop = min(begin + each, pixels) - lane;
    const int image = (begin + lane) / outputs;
    const ga_size t_image = groups * features * outputs;
    int l = begin, pixel = (begin + lane) % outputs;
    const GLOBAL_MEM W *from = x + image * x_image + group * x_group;
    const GLOBAL_MEM T *by = t + (image * groups + group) * features * outputs + pixel;
    int t_at[T_LOADS], x_at[X_LOADS], bits[X_LOADS];
    UNROLLED(v, T_LOADS)
        t_at[v] = min(i0 + first + v * (ITEMS / DEPTH), features - 1) * outputs;
    UNROLLED(v, X_LOADS) {
        const int j = j0 + first + v * (ITEMS / DEPTH);
        x_at[v] = j < depth ? terms[j * 2] : 0;
        bits[v] = j < depth ? terms[j * 2 + 1] : 0;
    }
    int2 spot = ((const GLOBAL_MEM int2 *)spots)[pixel];
    W acc[ITEM_ROWS][ITEM_COLS];
    UNROLLED(r, ITEM_ROWS) UNROLLED(c, ITEM_COLS)
        acc[r][c] = 0;

    const int count = min(begin + each, pixels) - begin;
    W t_next[T_LOADS], x_next[X_LOADS];
#define LOAD_TILES \
    { \
        const int mask = l < stop ? spot.s1 : 0; \
        UNROLLED(v, T_LOADS) \
            t_next[v] = l < stop ? LOAD(by[t_at[v]]) : 0; \
        UNROLLED(v, X_LOADS) \
            x_next[v] = mask & bits[v] ? from[spot.s0 + x_at[v]] : 0; \
        /* Advance to the next tile's pixels, which may be in the next image. */ \
        l += DEPTH; \
        by += DEPTH; \
        pixel += DEPTH; \
        while (pixel >= outputs) { \
            pixel -= outputs; \
            by += t_image - outputs; \
            from += x_image; \
        } \
        spot = ((const GLOBAL_MEM int2 *)spots)[pixel]; \
    }
#define KEEP_TILES(side) \
    UNROLLED(v, T_LOADS) \
        left[side][lane][first + v * (ITEMS / DEPTH) + TERM_SHIFT * (lane / 4)] = t_next[v]; \
    UNROLLED(v, X_LOADS) \
        right[side][lane][first + v * (ITEMS / DEPTH) + TERM_SHIFT * (lane / 4)] = x_next[v];

    TILE_LOOP
    sums += (part * groups + group) * features * depth;
    const int vectors = fresh && depth % WIDE == 0 && ((ga_size)sums & 15) == 0;
    UNROLLED_RANGE(c, 0, ITEM_COLS, WIDE) {
        const int j = j0 + COLUMN(c);
        UNROLLED(r, ITEM_ROWS) {
            if (ROW(r) >= features)
                continue;
            GLOBAL_MEM W *to = sums + (ga_size)ROW(r) * depth + j;
            if (vectors) {
                if (j < depth)
                    *(GLOBAL_MEM STORED *)to = (STORED)(STORED_SUMS);
                continue;
            }
            UNROLLED(d, WIDE)
                if (j + d < depth)
                    to[d] = fresh ? acc[r][c + d] : to[d] + acc[r][c + d];
        }
    }
}

/* The loop over the tiles of `count` terms: items load the next tiles while they multiply the current ones. */
void LOADED()
{
    LOAD_TILES
    KEEP_TILES(0)
    local_barrier();
    int side = 0;
    for (int rest = count; rest > 0; rest -= DEPTH) {
        if (rest > DEPTH) {
            LOAD_TILES
        }
        MULTIPLY
        if (rest > DEPTH) {
            KEEP_TILES(!side)
            side = !side;
        }
        local_barrier();
    }
}

/* Add the products of both tiles for one step, maybe on tensor cores, with numbers rounded to TF32. */
void MULTIPLY()
{
#if IS_TENSOR
    UNROLLED_RANGE(l, 0, DEPTH, 8) {
        uint a[ITEM_ROWS / 2][4], b[ITEM_COLS / 2][2];
        UNROLLED(i, ITEM_ROWS / 2) UNROLLED(c, 4)
            a[i][c] = as_uint(left[side][l + tx + c / 2 * 4][FIRST_ROW + i * 16 + ty + c % 2 * 8 + TERM_SHIFT * (l / 4 + c / 2)] * ROUNDING);
        UNROLLED(j, ITEM_COLS / 2) UNROLLED(c, 2)
            b[j][c] = as_uint(right[side][l + tx + c * 4][FIRST_COLUMN + j * 8 + ty + TERM_SHIFT * (l / 4 + c)] * ROUNDING);
        UNROLLED(i, ITEM_ROWS / 2) UNROLLED(j, ITEM_COLS / 2) {
            float sums[4];
            UNROLLED(c, 4)
                sums[c] = acc[2 * i + c / 2][2 * j + c % 2];
            multiply_add(EXCHANGE, sums, a[i], b[j]);
            UNROLLED(c, 4)
                acc[2 * i + c / 2][2 * j + c % 2] = sums[c];
        }
    }
#else
    UNROLLED(l, DEPTH) {
        W a[ITEM_ROWS], b[ITEM_COLS];
        UNROLLED_RANGE(r, 0, ITEM_ROWS, WIDE)
            READ_VECTOR(*(__local const VEC *)&left[side][l][r * (ROWS / ITEM_ROWS) + ty * WIDE], 0, a + r);
        UNROLLED_RANGE(c, 0, ITEM_COLS, WIDE)
            READ_VECTOR(*(__local const VEC *)&right[side][l][c * (COLS / ITEM_COLS) + tx * WIDE], 0, b + c);
        UNROLLED(r, ITEM_ROWS) UNROLLED(c, ITEM_COLS)
            acc[r][c] += a[r] * b[c];
    }
#endif
}

/* The filters of a block are contiguous, term by term, and padded with zeros. */
KERNEL void pack_blocks(ga_size count, ga_int rows, ga_int block, ga_int blocks, ga_int depth, ga_int padded,
    ga_ssize by_group, ga_ssize by_row, ARRAY ga_int *places, ARRAY T *x, ARRAY W *y)
{
    const ga_size i = get_global_id(0);
    if (i >= count)
        return;
    /* GPUs divide 32-bit integers several times as fast. */
    const bool is_short = count >> 32 == 0;
#define QUOTIENT(n, by) (is_short ? (uint)(n) / (uint)(by) : (n) / (by))
    const ga_size line = QUOTIENT(i, block), of_block = QUOTIENT(line, padded), group = QUOTIENT(of_block, blocks);
    const int term = line - of_block * padded;
    const int row = (int)(of_block - group * blocks) * block + (int)(i - line * block);
    const GLOBAL_MEM T *from = x + (ga_ssize)group * by_group;
    y[i] = row < rows && term < depth ? LOAD(from[(ga_ssize)row * by_row + places[term]]) : 0;
}

/* A group adds up the parts of neighbouring sums; if there are many parts, several items share each sum. */
__attribute__((reqd_work_group_size(256, 1, 1)))
KERNEL void total_of_parts(ga_size count, ga_int parts, ga_int slices, ARRAY W *sums, ARRAY T *z)
{
    __local W shares[256];
    const int item = get_local_id(0), lanes = 256 / slices, slice = item / lanes;
    const ga_size i = get_group_id(0) * (ga_size)lanes + item % lanes;
    W sum = 0;
    if (i < count)
        for (int part = slice; part < parts; part += slices)
            sum += sums[part * count + i];
    shares[item] = sum;
    local_barrier();
    if (slice || i >= count)
        return;
    for (int other = 1; other < slices; ++other)
        sum += shares[other * lanes + item];
    z[i] = STORE(sum);
}
