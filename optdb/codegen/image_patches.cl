/* An item fills a piece of the matrix in runs, each a row of a patch. If WRAPPED, images wrap around. */
OUTLINED_KERNEL void patches(ga_size n, ga_size chunk, ga_size stack, ga_ssize height, ga_ssize width,
    ga_size grid_rows, ga_size grid_columns, ga_size rows, ga_size columns, ga_ssize row_step, ga_ssize column_step,
    ga_ssize row_start, ga_ssize column_start,
    ARRAY RAW *x, ga_ssize x0, ga_ssize x1, ga_ssize x2, ga_ssize x3, ARRAY RAW *z)
{
    ga_size o = get_global_id(0) * chunk;
    const ga_size end = min(o + chunk, n);
    while (o < end) {
        ga_size rest = o;
        const ga_ssize j = rest % columns; rest /= columns;
        const ga_ssize i = rest % rows; rest /= rows;
        const ga_ssize b = rest % grid_columns; rest /= grid_columns;
        const ga_ssize a = rest % grid_rows; rest /= grid_rows;
        ga_ssize row = i + a * row_step - row_start, column = j + b * column_step - column_start;
        if (WRAPPED)
            row = row < 0 ? row + height : row >= height ? row - height : row;
        const GLOBAL_MEM RAW *from = x + (ga_ssize)(rest / stack) * x0 + (ga_ssize)(rest % stack) * x1 + row * x2;
        const bool inside = row >= 0 && row < height;
        const ga_size stop = min(end, o + (columns - j));
        for (; o < stop; ++o, ++column) {
            ga_ssize at = column;
            if (WRAPPED)
                at = column < 0 ? column + width : column >= width ? column - width : column;
            z[o] = inside && at >= 0 && at < width ? from[at * x3] : (RAW)(0);
        }
    }
}
