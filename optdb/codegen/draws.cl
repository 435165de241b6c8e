/* Count how often each outcome is drawn; p has a row of probabilities per distribution, u all random numbers. */
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

/* Return the drawn outcomes. Unless outcomes are drawn with replacement (REPLACE), the remaining probabilities are
normalized after each draw: divided by the sum of the probabilities before the outcome, as the host accumulates it, plus
the sum of those after it. */
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

/* For each number, find the first outcome whose accumulated probability is not less; else the number of outcomes. */
OUTLINED_KERNEL void first_outcomes(ga_size n, ga_size each, ga_size outcomes,
    ARRAY P_T *p, ga_ssize p0, ga_ssize p1, ARRAY U_T *u, ga_ssize u0, ARRAY T *z)
{
    const ga_size stop = min((get_global_id(0) + 1) * each, n);
    for (ga_size i = get_global_id(0) * each; i < stop; ++i) {
        const U_W number = U_LOAD(u[(ga_ssize)i * u0]);
        P_W sum = 0;
        ga_size m = 0;
        for (; m < outcomes; ++m) {
            sum += P_LOAD(p[(ga_ssize)i * p0 + (ga_ssize)m * p1]);
            if (!(sum < number))
                break;
        }
        z[i] = STORE(m);
    }
}
