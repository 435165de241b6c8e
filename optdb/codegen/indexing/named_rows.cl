/* Kernels that take, set and increment the rows of a C-contiguous array that a vector of indexes selects. */

KERNEL void take(ga_size n, ga_size columns, ARRAY RAW *x, ARRAY ga_long *rows, ARRAY RAW *z)
{
    for (ga_size i = get_global_id(0); i < n; i += get_global_size(0))
        z[i] = x[rows[i / columns] * columns + i % columns];
}

/*
order: positions in the index vector, sorted by row; starts: where each row's positions start in `order`. The last rows
may have none. CHANGE computes a new value from old and by, for each position from FIRST on.
*/
KERNEL void change_rows(ga_size n, ga_size columns, ARRAY T *x, ARRAY T *y,
    ARRAY ga_long *rows, ARRAY ga_long *order, ARRAY ga_long *starts)
{
    for (ga_size i = get_global_id(0); i < n; i += get_global_size(0)) {
        const ga_size group = i / columns, column = i % columns;
        if (starts[group] == starts[group + 1])
            continue;
        const ga_size p = rows[group] * columns + column;
        W old = LOAD(x[p]);
        for (ga_long m = FIRST; m < starts[group + 1]; ++m) {
            const W by = LOAD(y[order[m] * columns + column]);
            CHANGE
        }
        x[p] = STORE(old);
    }
}
