/* Kernels that create arrays. VALUE is element i, in the dtype of the array. */

KERNEL void count(ga_size n, W start, W step, ARRAY T *a)
{
    for (ga_size i = get_global_id(0); i < n; i += get_global_size(0))
        a[i] = VALUE;
}

KERNEL void triangle(ga_size n, ga_size columns, ga_ssize k, ARRAY T *a)
{
    for (ga_size i = get_global_id(0); i < n; i += get_global_size(0))
        a[i] = STORE((ga_ssize)(i % columns) <= (ga_ssize)(i / columns) + k);
}
