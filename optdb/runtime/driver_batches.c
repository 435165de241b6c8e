/*
Enqueues prepared commands, one after another. The functions are those of the OpenCL library that PyOpenCL uses.
*/

#include <stddef.h>

typedef int Launch(void *queue, void *kernel, unsigned dimensions, const size_t *offset, const size_t *global_size,
    const size_t *local_size, unsigned events, const void *waited_for, void *event);
/* A copy or a fill: in both, three sizes follow two pointers. */
typedef int Transfer(void *queue, void *buffer, const void *other, size_t, size_t, size_t, unsigned events,
    const void *waited_for, void *event);

/* Either `launch` or `transfer` is given. */
struct command {
    Launch *launch;
    Transfer *transfer;
    void *queue, *operand;
    const void *other;
    size_t sizes[3];
    const size_t *global_size, *local_size;
    unsigned dimensions;
};

/* Return how many commands are in the queue: all, or those before the first that the library refuses. */
size_t optdb_enqueue(const struct command *commands, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        const struct command *c = commands + i;
        const int status = c->launch
            ? c->launch(c->queue, c->operand, c->dimensions, 0, c->global_size, c->local_size, 0, 0, 0)
            : c->transfer(c->queue, c->operand, c->other, c->sizes[0], c->sizes[1], c->sizes[2], 0, 0, 0);
        if (status)
            return i;
    }
    return count;
}
