#section kernels

#kernel eye : *, size, size, ssize :

KERNEL void eye(GLOBAL_MEM DTYPE_OUTPUT_0 *a, ga_size a_off, ga_size n, ga_size m, ga_ssize k) {
    a = (GLOBAL_MEM DTYPE_OUTPUT_0 *)((GLOBAL_MEM char *)a + a_off);
    ga_ssize coff = max(k, (ga_ssize)0);
    ga_ssize roff = -min(k, (ga_ssize)0);
    ga_size nb = min(n - roff, m - coff);
    for (ga_size i = LID_0; i < nb; i += LDIM_0)
        a[(i + roff) * m + i + coff] = WRITE_OUTPUT_0(1);
}
