/* Kernels that execute the commands in a table, see optdb/device/launches/programs.py. */

__kernel void ADDRESS(__global char *buffer, __global ulong *addresses, ulong index)
{
    addresses[index] = (ulong)buffer;
}

/* Copy the entry of a tile into local memory unless it is there; return the tile's number within its command. The first
   barrier waits until all items have finished the previous tile. */
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

static ATTRIBUTE void optdb_copy_tile(const SPACE ulong *entry, uint tile)
{
    const ulong start = (ulong)tile * PIECE;
    const ulong nbytes = min((ulong)PIECE, entry[3] - start);
    __global char *to = (__global char *)(entry[1] + start);
    const __global char *from = (const __global char *)(entry[2] + start);
    const ulong words = (entry[1] | entry[2]) % sizeof(uint4) ? 0 : nbytes / sizeof(uint4);
    for (ulong i = ITEM; i < words; i += ITEMS)
        ((__global uint4 *)to)[i] = ((const __global uint4 *)from)[i];
    for (ulong i = words * sizeof(uint4) + ITEM; i < nbytes; i += ITEMS)
        to[i] = from[i];
}

/* A piece is a whole number of patterns; entry[4] and entry[5] hold the pattern repeated to 16 bytes. */
static ATTRIBUTE void optdb_fill_tile(const SPACE ulong *entry, uint tile)
{
    const ulong start = (ulong)tile * PIECE;
    const ulong nbytes = min((ulong)PIECE, entry[2] - start);
    __global char *to = (__global char *)(entry[1] + start);
    const ulong words = entry[1] % sizeof(ulong2) ? 0 : nbytes / sizeof(ulong2);
    for (ulong i = ITEM; i < words; i += ITEMS)
        ((__global ulong2 *)to)[i] = (ulong2)(entry[4], entry[5]);
    for (ulong i = words * sizeof(ulong2) + ITEM; i < nbytes; i += ITEMS)
        to[i] = (char)(entry[4 + i / 8 % 2] >> (i % 8 * 8));
}

/* One work item runs all commands in order. */
__kernel void SEQUENCE(const __global ulong *starts, uint count, const __global ulong *entries)
{
    for (uint command = 0; command < count; ++command) {
        const __global ulong *entry = entries + starts[command];
        switch ((uint)entry[0]) {
        case COPY: optdb_copy_tile(entry, 0); break;
        case FILL: optdb_fill_tile(entry, 0); break;
        CASES
        }
    }
}

/* Each group runs one tile; the order of tiles is undefined. */
__kernel void SCATTERED(const __global ulong *tiles, const __global ulong *entries)
{
    const ulong tile = tiles[get_group_id(0)];
    const __global ulong *entry = entries + (uint)tile;
    switch ((uint)entry[0]) {
    case COPY: optdb_copy_tile(entry, tile >> 32); break;
    case FILL: optdb_fill_tile(entry, tile >> 32); break;
    }
}

/* Persistent groups run the tiles phase by phase. */
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
            /* Load the next tile early, since loading takes as long as a small tile. */
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
            /* Load the next entry while other groups arrive at the barrier. */
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

/* Appended to a kernel's function: run one work item, given its number in the launch. */
static void ITEM_OF_LAUNCH(const __local ulong *its_list, uint its_index LOCAL_PARAM)
{
    GUARD
    const uint its_s0 = its_list[2], its_s1 = its_list[3], its_s2 = its_list[4];
    const uint its_n0 = its_list[5], its_n1 = its_list[6], its_n2 = its_list[7];
    const uint its_size = its_s0 * its_s1 * its_s2;
    /* Most launches have one dimension and groups of this size. Such launches need no division, which would take a
       noticeable part of a small tile's time. */
    const bool its_flat = (its_s1 | its_s2 | its_n1 | its_n2) == 1;
    const uint its_g = its_size == ITEMS ? its_index / ITEMS : its_index / its_size;
    const uint its_l = its_index - its_g * its_size;
    TAKEN
    FUNCTION(PASSED);
}

/* The same for all work items of a launch whose groups have one item. */
static ATTRIBUTE void ITEMS_OF_LAUNCH(const __global ulong *its_list)
{
    const ulong its_n0 = its_list[5], its_n1 = its_list[6], its_n2 = its_list[7];
    TAKEN
    for (ulong its_2 = 0; its_2 < its_n2; ++its_2)
        for (ulong its_1 = 0; its_1 < its_n1; ++its_1)
            for (ulong its_0 = 0; its_0 < its_n0; ++its_0)
                FUNCTION(PASSED);
}
