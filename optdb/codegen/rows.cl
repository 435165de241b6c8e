/*
Kernels that go over the rows of matrices: softmax, cross entropies, and draws from distributions.

In softmax, INPUTS are its parameters, ELEMENT is element j of row i, and RESULT what becomes of it.
*/

OUTLINED_KERNEL void softmax(ga_size rows, ga_size columns, INPUTS, ARRAY T *z)
{
#define AT(j) (ELEMENT)
    for (ga_size i = get_global_id(0); i < rows; i += get_global_size(0)) {
        W largest = AT(0);
        for (ga_size j = 1; j < columns; ++j) {
            const W v = AT(j);
            largest = v > largest || isnan(v) ? v : largest;
        }
        W sum = 0;
        for (ga_size j = 0; j < columns; ++j)
            sum += exp(AT(j) - largest);
        const W log_sum = log(sum);
        for (ga_size j = 0; j < columns; ++j)
            z[i * columns + j] = STORE(RESULT);
    }
#undef AT
}

OUTLINED_KERNEL void softmax_gradient(ga_size rows, ga_size columns, ARRAY T *dy, ga_ssize dy0, ga_ssize dy1,
    ARRAY T *sm, ga_ssize sm0, ga_ssize sm1, ARRAY T *z)
{
    for (ga_size i = get_global_id(0); i < rows; i += get_global_size(0)) {
        const GLOBAL_MEM T *dy_row = dy + (ga_ssize)i * dy0, *sm_row = sm + (ga_ssize)i * sm0;
        W sum = 0;
        for (ga_size j = 0; j < columns; ++j)
            sum += LOAD(dy_row[(ga_ssize)j * dy1]) * LOAD(sm_row[(ga_ssize)j * sm1]);
        for (ga_size j = 0; j < columns; ++j) {
            const W weight = LOAD(sm_row[(ga_ssize)j * sm1]);
            z[i * columns + j] = STORE(LOAD(dy_row[(ga_ssize)j * dy1]) * weight - sum * weight);
        }
    }
}

OUTLINED_KERNEL void crossentropy(ga_size rows, ga_size columns,
    ARRAY T *x, ga_ssize x0, ga_ssize x1, ARRAY T *b, ga_ssize b0, ARRAY ga_long *y,
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
        for (ga_size j = 0; j < columns; ++j)
            sm[i * columns + j] = STORE(exp(AT(j) - largest) / sum);
        nll[i] = STORE(largest - AT(y[i]) + log(sum));
        am[i] = (INDEX)place;
    }
#undef AT
}

OUTLINED_KERNEL void crossentropy_gradient(ga_size rows, ga_size columns, ARRAY T *dy, ga_ssize dy0,
    ARRAY T *sm, ga_ssize sm0, ga_ssize sm1, ARRAY ga_long *y, ARRAY T *dx)
{
    for (ga_size i = get_global_id(0); i < rows; i += get_global_size(0)) {
        const W by = LOAD(dy[(ga_ssize)i * dy0]);
        for (ga_size j = 0; j < columns; ++j) {
            const W part = by * LOAD(sm[(ga_ssize)i * sm0 + (ga_ssize)j * sm1]);
            dx[i * columns + j] = STORE(j == (ga_size)y[i] ? part - by : part);
        }
    }
}

KERNEL void lookup(ga_size n, ARRAY T *p, ga_ssize p0, ga_ssize p1, ARRAY ga_long *classes, ARRAY T *y)
{
    for (ga_size i = get_global_id(0); i < n; i += get_global_size(0))
        y[i] = STORE(-log(LOAD(p[(ga_ssize)i * p0 + classes[i] * p1])));
}

/* The gradient is of type G_T, and QUOTIENT is what is divided in. */
KERNEL void lookup_gradient(ga_size n, ga_size columns, ARRAY G_T *g, ga_ssize g0,
    ARRAY T *p, ga_ssize p0, ga_ssize p1, ARRAY ga_long *classes, ARRAY T *dp)
{
    for (ga_size i = get_global_id(0); i < n; i += get_global_size(0)) {
        const QUOTIENT by = G_LOAD(g[(ga_ssize)i * g0]);
        dp[i * columns + classes[i]] = STORE(-by / LOAD(p[(ga_ssize)i * p0 + classes[i] * p1]));
    }
}

/* How often each outcome is drawn: p has the rows of probabilities, u the random numbers of all draws. */
OUTLINED_KERNEL void count_draws(ga_size rows, ga_size outcomes, ga_size draws,
    ARRAY P_T *p, ga_ssize p0, ga_ssize p1, ARRAY U_T *u, ga_ssize u0, ARRAY T *z)
{
    for (ga_size row = get_global_id(0); row < rows; row += get_global_size(0)) {
        GLOBAL_MEM T *counts = z + row * outcomes;
        for (ga_size m = 0; m < outcomes; ++m)
            counts[m] = STORE(0);
        for (ga_size c = 0; c < draws; ++c) {
            const U_W wanted = U_LOAD(u[(ga_ssize)(c * rows + row) * u0]);
            ga_double sum = 0;
            for (ga_size m = 0; m < outcomes; ++m) {
                sum += P_LOAD(p[(ga_ssize)row * p0 + (ga_ssize)m * p1]);
                if (sum > wanted) {
                    counts[m] = STORE((W)(LOAD(counts[m]) + 1));
                    break;
                }
            }
        }
    }
}

/*
Which outcomes are drawn. What is left after a draw adds up to 1 again, unless it is put back (REPLACE): divided by the
sum of what comes before, as the host has it, and of the rest.
*/
OUTLINED_KERNEL void choose(ga_size rows, ga_size outcomes, ga_size draws,
    ARRAY P_T *p, ga_ssize p0, ga_ssize p1, ARRAY U_T *u, ga_ssize u0, ARRAY T *z, ARRAY P_W *rest)
{
    for (ga_size row = get_global_id(0); row < rows; row += get_global_size(0)) {
        GLOBAL_MEM P_W *left = rest + row * outcomes;
        GLOBAL_MEM T *chosen = z + row * draws;
        for (ga_size m = 0; m < outcomes; ++m)
            left[m] = P_LOAD(p[(ga_ssize)row * p0 + (ga_ssize)m * p1]);
        for (ga_size c = 0; c < draws; ++c)
            chosen[c] = STORE((W)(-1));
        for (ga_size c = 0; c < draws; ++c) {
            const U_W wanted = U_LOAD(u[(ga_ssize)(c * rows + row) * u0]);
            ga_double sum = 0;
            for (ga_size m = 0; m < outcomes; ++m) {
                const P_W mine = left[m];
                sum += mine;
                if (sum > wanted) {
                    chosen[c] = STORE(m);
                    if (!REPLACE && c + 1 < draws) {
                        P_W whole = sum - mine;
                        left[m] = 0;
                        for (ga_size k = m; k < outcomes; ++k)
                            whole = whole + left[k];
                        for (ga_size k = 0; k < outcomes; ++k)
                            left[k] = left[k] / whole;
                    }
                    break;
                }
            }
        }
    }
}
