/* A kernel that runs the groups of other kernels, see persistent.py. */

/* Copies the entry of a tile into local memory, unless it is there, and returns the tile's number within its command.
   All items are done with the tile before. */
static uint optdb_entry(__local ulong *entry, const __global ulong *entries, ulong tile, uint *place)
{
    barrier(CLK_LOCAL_MEM_FENCE);
    if (*place != (uint)tile) {
        *place = (uint)tile;
        const __global ulong *from = entries + *place;
        for (uint word = get_local_id(0); word < ENTRY_WORDS; word += ITEMS)
            entry[word] = from[word];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    return (uint)(tile >> 32);
}

static void optdb_copy_tile(const __local ulong *entry, uint tile)
{
    const ulong start = (ulong)tile * PIECE;
    const ulong nbytes = min((ulong)PIECE, entry[3] - start);
    __global char *to = (__global char *)(entry[1] + start);
    const __global char *from = (const __global char *)(entry[2] + start);
    const ulong words = (entry[1] | entry[2]) % sizeof(uint4) ? 0 : nbytes / sizeof(uint4);
    for (ulong i = get_local_id(0); i < words; i += ITEMS)
        ((__global uint4 *)to)[i] = ((const __global uint4 *)from)[i];
    for (ulong i = words * sizeof(uint4) + get_local_id(0); i < nbytes; i += ITEMS)
        to[i] = from[i];
}

/* A piece has a whole number of patterns, whose bytes fill two words. */
static void optdb_fill_tile(const __local ulong *entry, uint tile)
{
    const ulong start = (ulong)tile * PIECE;
    const ulong nbytes = min((ulong)PIECE, entry[2] - start);
    __global char *to = (__global char *)(entry[1] + start);
    const ulong words = entry[1] % sizeof(ulong2) ? 0 : nbytes / sizeof(ulong2);
    for (ulong i = get_local_id(0); i < words; i += ITEMS)
        ((__global ulong2 *)to)[i] = (ulong2)(entry[4], entry[5]);
    for (ulong i = words * sizeof(ulong2) + get_local_id(0); i < nbytes; i += ITEMS)
        to[i] = (char)(entry[4 + i / 8 % 2] >> (i % 8 * 8));
}

__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
__kernel void PERSISTENT(const __global uint *phases, const __global ulong *tiles, const __global ulong *entries,
    uint first, uint end, uint groups, __global uint *words, uint polls)
{
    __local ulong16 its_entry[ENTRY_WORDS / 16];
    LOCALS
    __local ulong *entry = (__local ulong *)its_entry;
    const uint group = get_group_id(0);
    uint tile = phases[first] + group, stop = phases[first + 1], number = 0;
    uint place = ~0u;
    STARTED
    if (tile < stop)
        number = optdb_entry(entry, entries, tiles[tile], &place);
    for (uint phase = first; phase < end; ++phase) {
        while (tile < stop) {
            const uint index = number * ITEMS + (uint)get_local_id(0);
            /* Read early: it takes as long as a small tile. */
            const ulong next = tile + groups < stop ? tiles[tile + groups] : 0;
            switch ((uint)entry[0]) {
            case COPY: optdb_copy_tile(entry, number); break;
            case FILL: optdb_fill_tile(entry, number); break;
            CASES
            }
            tile += groups;
            if (tile < stop)
                number = optdb_entry(entry, entries, next, &place);
        }
        if (phase + 1 < end) {
            /* What follows is read while the other groups come. */
            ARRIVAL
            tile = stop + group;
            stop = phases[phase + 2];
            if (tile < stop)
                number = optdb_entry(entry, entries, tiles[tile], &place);
            WAIT
        }
    }
    ENDED
}

/* Follows the function of a kernel; `index` is that of a work item in its launch. */
static void LISTED(const __local ulong *its_list, uint its_index LOCAL_PARAM)
{
    GUARD
    const uint its_s0 = its_list[2], its_s1 = its_list[3], its_s2 = its_list[4];
    const uint its_n0 = its_list[5], its_n1 = its_list[6], its_n2 = its_list[7];
    const uint its_size = its_s0 * its_s1 * its_s2;
    /* Most have one dimension and groups of this size, and to divide takes as long as a part of a small tile. */
    const bool its_flat = (its_s1 | its_s2 | its_n1 | its_n2) == 1;
    const uint its_g = its_size == ITEMS ? its_index / ITEMS : its_index / its_size;
    const uint its_l = its_index - its_g * its_size;
    TAKEN
    FUNCTION(PASSED);
}
