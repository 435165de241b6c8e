/* Kernels that process the rows of matrices: softmax and cross entropies. An item processes whole rows or, as one of a
team within a group, every team-th element of a row; a team has at most as many items as a row has elements.

In softmax, INPUTS are parameters, ELEMENT is element j of row i, and RESULT is the result for an element v. In
crossentropy, GRADIENT is a parameter for the gradient of the entropies if it is given, READ_GRADIENT reads the gradient
of a row, and RESULT_OF_WEIGHT declares the result for element j: its weight, or the gradient. */

OUTLINED_KERNEL void softmax(ga_size rows, ga_size columns, ga_size items, INPUTS, ARRAY T *z)
{
#define AT(j) (ELEMENT)
    for (ga_size i = get_global_id(0); i < rows; i += get_global_size(0)) {
        W largest = AT(0), sum = 0;
        for (ga_size j = 1; j < columns; ++j) {
            const W v = AT(j);
            largest = v > largest || isnan(v) ? v : largest;
        }
        for (ga_size j = 0; j < columns; ++j)
            sum += exp(AT(j) - largest);
        const W log_sum = log(sum);
        for (ga_size j = 0; j < columns; ++j) {
            const W v = AT(j);
            z[i * columns + j] = STORE(RESULT);
        }
    }
}

OUTLINED_KERNEL void softmax_gradient(ga_size rows, ga_size columns, ga_size items, ARRAY T *dy, ga_ssize dy0,
    ga_ssize dy1, ARRAY T *sm, ga_ssize sm0, ga_ssize sm1, ARRAY T *z)
{
    SHARED
    TEAM {
        const GLOBAL_MEM T *dy_row = dy + (ga_ssize)i * dy0, *sm_row = sm + (ga_ssize)i * sm0;
        W sum = 0;
        if (i < rows) {
            UNROLL
            for (ga_size j = lane; j < columns; j += team)
                sum += LOAD(dy_row[(ga_ssize)j * dy1]) * LOAD(sm_row[(ga_ssize)j * sm1]);
        }
        FOLD(sum, u + v)
        if (i < rows) {
            UNROLL
            for (ga_size j = lane; j < columns; j += team) {
                const W weight = LOAD(sm_row[(ga_ssize)j * sm1]);
                z[i * columns + j] = STORE(LOAD(dy_row[(ga_ssize)j * dy1]) * weight - sum * weight);
            }
        }
    }
}

OUTLINED_KERNEL void crossentropy(ga_size rows, ga_size columns, ga_size items,
    ARRAY T *x, ga_ssize x0, ga_ssize x1, ARRAY T *b, ga_ssize b0, ARRAY ga_long *y GRADIENT,
    ARRAY T *nll, ARRAY T *sm, ARRAY INDEX *am)
{
#define AT(j) (LOAD(x[(ga_ssize)i * x0 + (ga_ssize)(j) * x1]) + LOAD(b[(ga_ssize)(j) * b0]))
    for (ga_size i = get_global_id(0); i < rows; i += get_global_size(0)) {
        W largest = AT(0);
        ga_size place = 0;
        for (ga_size j = 1; j < columns; ++j) {
            const W v = AT(j);
            if (v > largest || (isnan(v) && !isnan(largest))) {
                largest = v;
                place = j;
            }
        }
        W sum = 0;
        for (ga_size j = 0; j < columns; ++j)
            sum += exp(AT(j) - largest);
        GLOBAL_MEM T *sm_row = sm + i * columns;
        READ_GRADIENT
        for (ga_size j = 0; j < columns; ++j) {
            const W weight = exp(AT(j) - largest) / sum;
            RESULT_OF_WEIGHT
            sm_row[j] = STORE(result);
        }
        nll[i] = STORE(largest - AT(y[i]) + log(sum));
        am[i] = (INDEX)place;
    }
}

OUTLINED_KERNEL void crossentropy_gradient(ga_size rows, ga_size columns, ga_size items, ARRAY T *dy, ga_ssize dy0,
    ARRAY T *sm, ga_ssize sm0, ga_ssize sm1, ARRAY ga_long *y, ARRAY T *dx)
{
    TEAM {
        if (i >= rows)
            return;
        const W by = LOAD(dy[(ga_ssize)i * dy0]);
        const ga_size its_class = (ga_size)y[i];
        UNROLL
        for (ga_size j = lane; j < columns; j += team) {
            const W part = by * LOAD(sm[(ga_ssize)i * sm0 + (ga_ssize)j * sm1]);
            dx[i * columns + j] = STORE(j == its_class ? part - by : part);
        }
    }
}

KERNEL void lookup(ga_size n, ARRAY T *p, ga_ssize p0, ga_ssize p1, ARRAY ga_long *classes, ARRAY T *y)
{
    for (ga_size i = get_global_id(0); i < n; i += get_global_size(0))
        y[i] = STORE(-log(LOAD(p[(ga_ssize)i * p0 + classes[i] * p1])));
}

/* The gradient has the type G_T; QUOTIENT is the type of the division. */
KERNEL void lookup_gradient(ga_size n, ga_size columns, ARRAY G_T *g, ga_ssize g0,
    ARRAY T *p, ga_ssize p0, ga_ssize p1, ARRAY ga_long *classes, ARRAY T *dp)
{
    for (ga_size i = get_global_id(0); i < n; i += get_global_size(0)) {
        const QUOTIENT by = G_LOAD(g[(ga_ssize)i * g0]);
        dp[i * columns + classes[i]] = STORE(-by / LOAD(p[(ga_ssize)i * p0 + classes[i] * p1]));
    }
}
