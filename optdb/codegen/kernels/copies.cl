/* Many copies in one launch, see copies.py. */

__kernel void ADDRESS_AT(__global char *buffer, __global ulong *addresses, ulong index)
{
    addresses[index] = (ulong)buffer;
}

__kernel void COPIES(const __global ulong *pieces)
{
    const __global ulong *piece = pieces + 3 * get_group_id(0);
    __global char *to = (__global char *)piece[0];
    const __global char *from = (const __global char *)piece[1];
    const ulong nbytes = piece[2], item = get_local_id(0), items = get_local_size(0);
    const ulong words = (piece[0] | piece[1]) % sizeof(uint4) ? 0 : nbytes / sizeof(uint4);
    for (ulong i = item; i < words; i += items)
        ((__global uint4 *)to)[i] = ((const __global uint4 *)from)[i];
    for (ulong i = words * sizeof(uint4) + item; i < nbytes; i += items)
        to[i] = from[i];
}
