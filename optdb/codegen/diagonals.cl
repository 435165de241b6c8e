/* Write ONE on a diagonal of a matrix of zeros: to `count` elements, `step` apart. */
KERNEL void eye(ARRAY T *a, ga_size first, ga_size step, ga_size count)
{
    const ga_size i = GID_0 * LDIM_0 + LID_0;
    if (i < count)
        a[first + i * step] = ONE;
}
