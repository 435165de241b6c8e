/* A kernel that does launches one after the other, see sequences.py. */

__kernel void ADDRESS(__global char *buffer, __global ulong *address)
{
    *address = (ulong)buffer;
}

__attribute__((noinline))
static void optdb_copy(__global char *to, const __global char *from, ulong nbytes)
{
    for (ulong i = 0; i < nbytes; ++i)
        to[i] = from[i];
}

__attribute__((noinline))
static void optdb_fill(__global char *to, ulong nbytes, ulong pattern)
{
    for (ulong i = 0; i < nbytes; ++i)
        to[i] = (char)(pattern >> (i % 8 * 8));
}

__kernel void SEQUENCE(const __global ulong *t)
{
    for (; t[0] != END; t += t[1])
        switch (t[0]) {
        case COPY: optdb_copy((__global char *)t[2], (const __global char *)t[3], t[4]); break;
        case FILL: optdb_fill((__global char *)t[2], t[3], t[4]); break;
        CASES
        }
}

/* Follows an outlined kernel. Ids of work items have the names of `outlining`. */
__attribute__((noinline))
static void LISTED(const __global ulong *its_list)
{
    const ulong its_n0 = its_list[2], its_n1 = its_list[3], its_n2 = its_list[4];
    its_list += 5;
    TAKEN
    for (ulong its_2 = 0; its_2 < its_n2; ++its_2)
        for (ulong its_1 = 0; its_1 < its_n1; ++its_1)
            for (ulong its_0 = 0; its_0 < its_n0; ++its_0)
                FUNCTION(PASSED);
}
