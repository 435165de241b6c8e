/*
Makes prepared calls in order, without Python. Most of the functions are in the OpenCL library that PyOpenCL uses.

A record holds a call's arguments as words. Each function is called through its own prototype.
*/

#define _POSIX_C_SOURCE 200112L /* for clock_gettime, nanosleep and sched_yield */

#include <math.h>
#include <sched.h>
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

/* Write the current time. */
int optdb_note_time(double *where)
{
    *where = seconds();
    return 0;
}

/* The number of threads that have not agreed yet; negative if the agreement has failed. */
typedef _Atomic int32_t Agreement;

/* Fail the agreement unless all threads have agreed; return whether it has failed. */
int optdb_give_up(Agreement *missing)
{
    int32_t seen = atomic_load(missing);
    while (seen > 0)
        if (atomic_compare_exchange_weak(missing, &seen, -1))
            return 1;
    return seen < 0;
}

/* Agree and wait for all other threads; return 1 if a thread has given up or does not agree in time. */
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

/* The function that a record calls, in the order of `_FUNCTIONS` in driver_batches.py. */
enum kind { LAUNCH, COPY, FILL, WRITE, READ, BARRIER, WAIT, FLUSH, AGREE, NOTE_TIME, ALL_REDUCE };

/* Types from the OpenCL specification. */
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
typedef Status Release(Event);

/*
An all-reduce: each device of a process has a thread, which reduces the vectors of all devices on the host.
all_reduce.py declares the same structs. */

/* How a round reduces its vectors: it sums them, or merges moments of parts into moments of all elements.
*/ enum reduction { SUM, MOMENTS };

/* How many numbers each channel has in given moments and in merged moments. */
enum { GIVEN = 3, MERGED = 2 };

/* A device's own vector and the results. */
typedef struct {
    uint64_t reduction, itemsize, size;
    void *values;
    /* For each piece of moments, how many numbers it has, and the number of elements per channel. */
    uint64_t pieces;
    const uint64_t *lengths;
    const double *counts;
    void *results;
    Event event; /* the event of the copy to the host; 0 if there is nothing to wait for */
} Term;

/* A device's vectors in a round, and the attempt at a step that they belong to; attempts are numbered from 1. */
typedef struct {
    _Atomic uint64_t attempt;
    const Term *terms;
} Post;

/* A device that takes part in the current step. */
typedef struct {
    uint64_t rank, active, attempt, microseconds;
    _Atomic uint64_t *aborted; /* this attempt and all earlier ones have failed */
    double seconds;            /* since the device's own vectors were on the host */
} Member;

typedef struct {
    Member *member;
    Post *posts; /* by rank */
    Term *terms;
    uint64_t count;
    Wait *wait;
    Release *release;
    uint64_t late, late_rank; /* the attempt in which another device timed out, and that device's rank */
} Round;

/* The number of polls before a thread starts to sleep between polls. */
enum { LOOKS = 200 };

/* Wait until another device has posted its vectors; return whether it has. */
static int is_posted(Round *round, uint64_t rank)
{
    const Post *post = round->posts + rank;
    const Member *me = round->member;
    const double end = seconds() + 1e-6 * me->microseconds;
    const struct timespec nap = {0, 5000};
    for (unsigned looks = 0; atomic_load(&post->attempt) < me->attempt; ++looks) {
        if (atomic_load(me->aborted) >= me->attempt)
            return 0;
        if (looks < LOOKS) {
            sched_yield();
            continue;
        }
        if (seconds() > end) {
            round->late = me->attempt, round->late_rank = rank;
            return 0;
        }
        nanosleep(&nap, 0);
    }
    return 1;
}

/* If there is no compiler, NumPy computes the same bits, with the same order and rounding. */

static double number_of(const Term *term, uint64_t i)
{
    return term->itemsize == sizeof(float) ? ((const float *)term->values)[i] : ((const double *)term->values)[i];
}

static double rounded(const Term *term, double value)
{
    return term->itemsize == sizeof(float) ? (float)value : value;
}

static void set_result(const Term *term, uint64_t i, double value)
{
    if (term->itemsize == sizeof(float))
        ((float *)term->results)[i] = (float)value;
    else
        ((double *)term->results)[i] = value;
}

static void add_up(const Round *round, uint64_t number)
{
    const Term *own = round->terms + number;
    for (uint64_t i = 0; i < own->size; ++i) {
        double total = number_of(round->posts[0].terms + number, i);
        for (uint64_t rank = 1; rank < round->member->active; ++rank)
            total = rounded(own, total + number_of(round->posts[rank].terms + number, i));
        set_result(own, i, total);
    }
}

/* The method of Chan, Golub and LeVeque (1979), like `combined` in collective.py. */
static void merge_moments(const Round *round, uint64_t number)
{
    const uint64_t active = round->member->active;
    const Term *own = round->terms + number;
    for (uint64_t piece = 0, start = 0; piece < own->pieces; start += own->lengths[piece++]) {
        const uint64_t channels = own->lengths[piece] / GIVEN;
        for (uint64_t channel = 0; channel < channels; ++channel) {
            double seen = 0, mean = 0, squares = 0;
            for (uint64_t rank = 0; rank < active; ++rank) {
                const Term *term = round->posts[rank].terms + number;
                const uint64_t at = start + channel;
                const double more = term->counts[piece];
                const double mine = number_of(term, at) + number_of(term, at + channels);
                const double own_squares = number_of(term, at + 2 * channels);
                if (seen == 0) {
                    seen = more, mean = mine, squares = own_squares;
                    continue;
                }
                const double off = mine - mean, total = seen + more;
                squares = squares + own_squares + off * off * (seen * more / total);
                mean = isfinite(off) ? mean + off * (more / total) : mine * (more / total) + mean * (seen / total);
                seen = total;
            }
            const uint64_t into = start / GIVEN * MERGED + channel;
            set_result(own, into, mean);
            set_result(own, into + channels, squares / seen);
        }
    }
}

/* Reduce the vectors of all devices once they are on the host. Return 0 on success. */
int optdb_all_reduce(Round *round)
{
    Member *me = round->member;
    for (uint64_t i = 0; i < round->count; ++i) {
        Event *event = &round->terms[i].event;
        if (!*event)
            continue;
        const Status status = round->wait(1, event);
        if (status)
            return status;
        round->release(*event);
        *event = 0;
    }
    if (!me->attempt || round->late == me->attempt)
        return 1;
    const double start = seconds();
    Post *own = round->posts + me->rank;
    own->terms = round->terms;
    atomic_store(&own->attempt, me->attempt);
    for (uint64_t rank = 0; rank < me->active; ++rank)
        if (!is_posted(round, rank))
            return 1;
    for (uint64_t i = 0; i < round->count; ++i)
        if (round->terms[i].reduction == SUM)
            add_up(round, i);
        else
            merge_moments(round, i);
    me->seconds += seconds() - start;
    return 0;
}

/* A call to a function that returns a status, 0 on success. */
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
    case ALL_REDUCE:
        return optdb_all_reduce(w[0].p);
    default:
        return -1;
    }
}

/* Make calls until one fails; return the number that succeeded. */
size_t optdb_call(const struct call *calls, size_t count)
{
    for (size_t i = 0; i < count; ++i)
        if (make(calls + i))
            return i;
    return count;
}
