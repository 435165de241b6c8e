/*
Makes prepared calls, one after another, without Python. Most functions are those of the OpenCL library that PyOpenCL
uses.

Each call passes as many words as the longest of these functions has parameters. A function takes the words of its own
parameters: the platforms that have 64-bit pointers pass each one in a register or in eight bytes of the stack.
*/

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef uint64_t Word;
_Static_assert(sizeof(void *) == sizeof(Word), "pointers have 64 bits");
typedef int Function(Word, Word, Word, Word, Word, Word, Word, Word, Word);

/* A function that returns a status, 0 if it has done its work. */
struct call {
    Function *function;
    Word words[9];
};

/* Make calls; return how many: all, or those before the first that does not return 0. */
size_t optdb_call(const struct call *calls, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        const Word *w = calls[i].words;
        if (calls[i].function(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8]))
            return i;
    }
    return count;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* Write the present time. */
int optdb_note_time(double *where)
{
    *where = seconds();
    return 0;
}

/* How many have not agreed yet; once it is below 0, nobody can agree. */
typedef _Atomic int32_t Agreement;

/* Let nobody agree, unless all have done so; return whether they have not. */
int optdb_give_up(Agreement *missing)
{
    int32_t seen = atomic_load(missing);
    while (seen > 0)
        if (atomic_compare_exchange_weak(missing, &seen, -1))
            return 1;
    return seen < 0;
}

/* Agree, and wait until all have agreed; return 1 if somebody has given up, or does not agree in time. */
int optdb_agree(Agreement *missing, Word microseconds)
{
    const double end = seconds() + 1e-6 * microseconds;
    const struct timespec nap = {0, 10000};
    int32_t seen = atomic_load(missing);
    do
        if (seen < 0)
            return 1;
    while (!atomic_compare_exchange_weak(missing, &seen, seen - 1));
    while ((seen = atomic_load(missing)) > 0) {
        if (seconds() > end)
            return optdb_give_up(missing);
        nanosleep(&nap, 0);
    }
    return seen < 0;
}
