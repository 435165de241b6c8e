/* Kernels for whole matrices. Work groups loop over rows; LANE is an item's number among the LANES of its group. */

/* Zero the other triangle of C-contiguous square matrices; fill matrices whose factorization failed with NaN. */
KERNEL void finish_triangle(ga_size rows, ga_size n, ga_size lower, ARRAY T *z, ARRAY ga_int *info)
{
    for (ga_size row = GID_0; row < rows; row += GDIM_0) {
        const ga_size i = row % n;
        const bool failed = info[row / n];
        const ga_size begin = lower && !failed ? i + 1 : 0, end = lower || failed ? n : i;
        const W fill = failed ? (W)NAN : (W)0;
        GLOBAL_MEM T *to = z + row * n;
        for (ga_size k = begin + LANE; k < end; k += LANES)
            to[k] = fill;
    }
}

/* faults[0] becomes 1 if an element of the `rows` rows is not finite. With `diagonal`, faults[1] becomes the maximum of
a fixed number minus the index of each 0 on a diagonal; matrices have n rows. */
KERNEL void find_faults(ga_size rows, ga_size n, ga_size columns, ga_size diagonal,
    ARRAY T *x, ga_ssize xb, ga_ssize x0, ga_ssize x1, ARRAY ga_int *faults)
{
    for (ga_size row = GID_0; row < rows; row += GDIM_0) {
        const ga_ssize i = row % n;
        const GLOBAL_MEM T *from = x + (ga_ssize)(row / n) * xb + i * x0;
        bool finite = true;
        for (ga_size k = LANE; k < columns; k += LANES)
            finite = finite && isfinite(from[(ga_ssize)k * x1]);
        if (!finite)
            atomic_max((volatile GLOBAL_MEM int *)faults, 1);
        if (LANE == 0 && diagonal && from[i * x1] == 0)
            atomic_max((volatile GLOBAL_MEM int *)faults + 1, (int)(NONE - (ga_ssize)row));
    }
}
