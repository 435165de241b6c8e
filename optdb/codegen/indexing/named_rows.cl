/*
Kernels that take, set and increment the rows of an array in C order that a vector of indexes names.
*/

KERNEL void take(ga_size n, ga_size columns, ARRAY RAW *x, ARRAY ga_long *rows, ARRAY RAW *z)
{
    for (ga_size i = get_global_id(0); i < n; i += get_global_size(0))
        z[i] = x[rows[i / columns] * columns + i % columns];
}

/*
order: mentions, sorted by the row they name; starts: where in it each row's mentions begin. Behind the last row there
may be some without mentions. CHANGE makes a new value of old and by, from each mention after FIRST.
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
