/*
Makes prepared calls, one after another, without Python. Most functions are those of the OpenCL library that PyOpenCL
uses.

A record holds a call's arguments as words. Each function is called by its own prototype.
*/

#define _POSIX_C_SOURCE 199309L /* for clock_gettime and nanosleep */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* An argument. */
typedef union {
    uint64_t n;
    void *p;
} Word;
_Static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8, "pointers and sizes have 64 bits");

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
int optdb_agree(Agreement *missing, uint64_t microseconds)
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

/* What a record calls: in the order of `_FUNCTIONS` in driver_batches.py. */
enum kind { LAUNCH, COPY, FILL, WRITE, READ, BARRIER, WAIT, FLUSH, AGREE, NOTE_TIME };

/* The types of the OpenCL specification. */
typedef struct _cl_command_queue *Queue;
typedef struct _cl_kernel *Kernel;
typedef struct _cl_mem *Mem;
typedef struct _cl_event *Event;
typedef const Event *Events;
typedef const size_t *Sizes;
typedef uint32_t Uint;
typedef int32_t Status;

typedef Status Launch(Queue, Kernel, Uint, Sizes, Sizes, Sizes, Uint, Events, Event *);
typedef Status Copy(Queue, Mem, Mem, size_t, size_t, size_t, Uint, Events, Event *);
typedef Status Fill(Queue, Mem, const void *, size_t, size_t, size_t, Uint, Events, Event *);
typedef Status Write(Queue, Mem, Uint, size_t, size_t, const void *, Uint, Events, Event *);
typedef Status Read(Queue, Mem, Uint, size_t, size_t, void *, Uint, Events, Event *);
typedef Status Barrier(Queue, Uint, Events, Event *);
typedef Status Wait(Uint, Events);
typedef Status Flush(Queue);

/* A call of a function that returns a status, 0 if it has done its work. */
struct call {
    uint64_t kind;
    void (*function)(void);
    Word words[9];
};

/* Make a call; return its status. */
static Status make(const struct call *call)
{
    void (*const f)(void) = call->function;
    const Word *w = call->words;
    switch (call->kind) {
    case LAUNCH:
        return ((Launch *)f)(w[0].p, w[1].p, w[2].n, w[3].p, w[4].p, w[5].p, w[6].n, w[7].p, w[8].p);
    case COPY:
        return ((Copy *)f)(w[0].p, w[1].p, w[2].p, w[3].n, w[4].n, w[5].n, w[6].n, w[7].p, w[8].p);
    case FILL:
        return ((Fill *)f)(w[0].p, w[1].p, w[2].p, w[3].n, w[4].n, w[5].n, w[6].n, w[7].p, w[8].p);
    case WRITE:
        return ((Write *)f)(w[0].p, w[1].p, w[2].n, w[3].n, w[4].n, w[5].p, w[6].n, w[7].p, w[8].p);
    case READ:
        return ((Read *)f)(w[0].p, w[1].p, w[2].n, w[3].n, w[4].n, w[5].p, w[6].n, w[7].p, w[8].p);
    case BARRIER:
        return ((Barrier *)f)(w[0].p, w[1].n, w[2].p, w[3].p);
    case WAIT:
        return ((Wait *)f)(w[0].n, w[1].p);
    case FLUSH:
        return ((Flush *)f)(w[0].p);
    case AGREE:
        return optdb_agree(w[0].p, w[1].n);
    case NOTE_TIME:
        return optdb_note_time(w[0].p);
    default:
        return -1;
    }
}

/* Make calls; return how many: all, or those before the first that does not return 0. */
size_t optdb_call(const struct call *calls, size_t count)
{
    for (size_t i = 0; i < count; ++i)
        if (make(calls + i))
            return i;
    return count;
}
