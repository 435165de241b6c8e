/*
Kernels between two passes over the elements. For each channel `k` of `n`, they merge the sums of its parts, which have
m elements in total, and compute the numbers that the next pass uses for each element.
*/

/* Merge the moments of the parts of a channel. */
void merged_moments()
{
    ga_double seen = 0, mean = 0, squares = 0;
    for (ga_size i = 0; i < parts; ++i) {
        const ga_double more = min(part, m - i * part), all = seen + more;
        const ga_double off = means[i * n + k] - mean;
        /* The mean of a part may be infinite. */
        mean = isfinite(off) ? mean + off * (more / all) : mean * (seen / all) + means[i * n + k] * (more / all);
        squares += deviations[i * n + k] + off * off * (seen * more / all);
        seen = all;
    }
    if (seen == 0)
        mean = NAN;
}

/* Add up the sums of the parts of a channel. */
void merged_sums()
{
    ga_double sum_dy = 0, product = 0, sum_d = 0;
    for (ga_size i = 0; i < parts; ++i) {
        sum_dy += sums_dy[i * n + k];
        product += products[i * n + k];
        sum_d += sums_d[i * n + k];
    }
}

/* OLD_RUNNING, NEW_RUNNING and UPDATE_RUNNING are for running averages; they are empty if there are none. */
OUTLINED_KERNEL void train_numbers(ga_size n, ga_size m, ga_size parts, ga_size part, ga_double epsilon,
    ga_double factor, ARRAY ga_double *means, ARRAY ga_double *deviations, ARRAY T *scale, ARRAY T *bias OLD_RUNNING,
    ARRAY T *batch_mean, ARRAY T *invstd NEW_RUNNING, ARRAY W *center, ARRAY W *slope, ARRAY W *offset)
{
    for (ga_size k = get_global_id(0); k < n; k += get_global_size(0)) {
        MERGED
        const ga_double size = m, var = squares / seen;
        const ga_double inverse = 1 / sqrt(var + epsilon);
        batch_mean[k] = STORE(mean);
        invstd[k] = STORE(inverse);
        center[k] = mean;
        slope[k] = LOAD(scale[k]) * inverse;
        offset[k] = LOAD(bias[k]);
        UPDATE_RUNNING
    }
}

OUTLINED_KERNEL void gradient_numbers(ga_size n, ga_size m, ga_size parts,
    ARRAY ga_double *sums_dy, ARRAY ga_double *products, ARRAY ga_double *sums_d,
    ARRAY T *scale, ARRAY T *mean, ARRAY T *invstd, ARRAY T *g_scale, ARRAY T *g_bias,
    ARRAY W *center, ARRAY W *inverse, ARRAY W *slope, ARRAY W *offset, ARRAY W *factor)
{
    for (ga_size k = get_global_id(0); k < n; k += get_global_size(0)) {
        MERGED
        const ga_double size = m, inv = LOAD(invstd[k]);
        const ga_double by = product / size * inv * inv * inv;
        g_scale[k] = STORE(product * inv);
        g_bias[k] = STORE(sum_dy);
        center[k] = LOAD(mean[k]);
        inverse[k] = inv;
        slope[k] = by;
        offset[k] = (sum_dy * inv - sum_d * by) / size;
        factor[k] = LOAD(scale[k]);
    }
}

/* The mean is stored as two numbers: its value rounded to W, and the rest. */
OUTLINED_KERNEL void moments_numbers(ga_size n, ga_size m, ga_size parts, ga_size part,
    ARRAY ga_double *means, ARRAY ga_double *deviations, ARRAY W *moments)
{
    for (ga_size k = get_global_id(0); k < n; k += get_global_size(0)) {
        MERGED
        moments[k] = mean;
        moments[n + k] = isfinite(mean) ? mean - (ga_double)(W)mean : 0;
        moments[2 * n + k] = squares;
    }
}

OUTLINED_KERNEL void sums_numbers(ga_size n, ga_size m, ga_size parts,
    ARRAY ga_double *sums_dy, ARRAY ga_double *products, ARRAY ga_double *sums_d, ARRAY T *invstd, ARRAY W *sums)
{
    for (ga_size k = get_global_id(0); k < n; k += get_global_size(0)) {
        MERGED
        sums[k] = product * LOAD(invstd[k]);
        sums[n + k] = sum_dy;
        sums[2 * n + k] = sum_d;
    }
}

OUTLINED_KERNEL void inference_numbers(ga_size n, W epsilon, ARRAY T *scale, ARRAY T *bias, ARRAY T *mean, ARRAY T *var,
    ARRAY W *center, ARRAY W *slope, ARRAY W *offset)
{
    for (ga_size k = get_global_id(0); k < n; k += get_global_size(0)) {
        center[k] = LOAD(mean[k]);
        slope[k] = LOAD(scale[k]) / sqrt(LOAD(var[k]) + epsilon);
        offset[k] = LOAD(bias[k]);
    }
}
