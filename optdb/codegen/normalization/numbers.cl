/* Kernels between two passes over the elements. In EACH_CHANNEL, a team merges the sums of the parts of a channel `k` of
`n`, which has m elements in total; MERGED declares the merged numbers, of type N. The kernels compute the numbers that
the next pass uses for each element. SUMS are the arrays of sums. */

/* OLD_RUNNING, NEW_RUNNING and UPDATE_RUNNING are for running averages; they are empty if there are none. */
KERNEL void train_numbers(ga_size n, ga_size items, ga_size m, ga_size parts, ga_size part, N epsilon, N factor, SUMS,
    ARRAY T *scale, ARRAY T *bias OLD_RUNNING, ARRAY T *batch_mean, ARRAY T *invstd NEW_RUNNING,
    ARRAY W *center, ARRAY W *slope, ARRAY W *offset)
{
    EACH_CHANNEL {
        MERGED
        const N size = m, var = squares / size, inverse = 1 / sqrt(var + epsilon);
        batch_mean[k] = STORE(mean);
        invstd[k] = STORE(inverse);
        center[k] = mean;
        slope[k] = LOAD(scale[k]) * inverse;
        offset[k] = LOAD(bias[k]);
        UPDATE_RUNNING
    }
}

KERNEL void gradient_numbers(ga_size n, ga_size items, ga_size m, ga_size parts, SUMS,
    ARRAY T *scale, ARRAY T *mean, ARRAY T *invstd, ARRAY T *g_scale, ARRAY T *g_bias,
    ARRAY W *center, ARRAY W *inverse, ARRAY W *slope, ARRAY W *offset, ARRAY W *factor)
{
    EACH_CHANNEL {
        MERGED
        const N size = m, inv = LOAD(invstd[k]), by_scale = product * inv, by = by_scale / size * inv * inv;
        g_scale[k] = STORE(by_scale);
        g_bias[k] = STORE(sum_dy);
        center[k] = LOAD(mean[k]);
        inverse[k] = inv;
        slope[k] = by;
        offset[k] = (sum_dy * inv - sum_d * by) / size;
        factor[k] = LOAD(scale[k]);
    }
}

KERNEL void moments_numbers(ga_size n, ga_size items, ga_size m, ga_size parts, ga_size part, SUMS, ARRAY W *moments)
{
    EACH_CHANNEL {
        MERGED
        moments[k] = rounded;
        moments[n + k] = rest;
        moments[2 * n + k] = squares;
    }
}

KERNEL void sums_numbers(ga_size n, ga_size items, ga_size m, ga_size parts, SUMS, ARRAY T *invstd, ARRAY W *sums)
{
    EACH_CHANNEL {
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
