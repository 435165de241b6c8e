/* Kernels for unshared filters, which differ for each output, see operations.py. An output's offset in the image is
   pixels[p]. Filters have the shape (features, outputs, channels, taps). */

/* Outputs are sums over elements `k` of filters `a`; gradients for filters are sums over images, with gradients `a`. */
OUTLINED_KERNEL void UNSHARED(ga_size n, ga_size chunk, ga_size images, ga_size features, ga_size plane,
    ga_size depth, ga_size in_group, ga_size x_image, ga_size x_group, ARRAY W *x, ARRAY ga_long *offsets,
    ARRAY ga_long *pixels, ARRAY T *a, ARRAY T *z)
{
    const ga_size first = get_global_id(0) * chunk, last = min(first + chunk, n);
    for (ga_size i = first; i < last; ++i) {
        const ga_size f = i / plane, p = i % plane;
        const GLOBAL_MEM W *from = x + f / in_group * x_group + pixels[p];
        for (ga_size outer = 0; outer < (FORWARD ? images : depth); ++outer) {
            W sum = 0;
            for (ga_size inner = 0; inner < (FORWARD ? depth : images); ++inner) {
                const ga_size image = FORWARD ? outer : inner, k = FORWARD ? inner : outer;
                const W factor = LOAD(a[FORWARD ? i * depth + k : (image * features + f) * plane + p]);
                sum += factor * from[image * x_image + offsets[k]];
            }
            z[FORWARD ? (outer * features + f) * plane + p : i * depth + outer] = STORE(sum);
        }
    }
}

OUTLINED_KERNEL void unshared_inputs(ga_size n, ga_size chunk, ga_size groups, ga_size features, ga_size channels,
    ga_uint flip, ga_ssize length0, ga_ssize taps0, ga_ssize low0, ga_ssize step0, ga_ssize dilation0, ga_ssize out0,
    ga_ssize length1, ga_ssize taps1, ga_ssize low1, ga_ssize step1, ga_ssize dilation1, ga_ssize out1,
    ga_ssize length2, ga_ssize taps2, ga_ssize low2, ga_ssize step2, ga_ssize dilation2, ga_ssize out2, ARRAY T *t,
    ARRAY T *w, ARRAY T *z)
{
    const ga_size plane = out0 * out1 * out2, taps = taps0 * taps1 * taps2;
    const ga_size first = get_global_id(0) * chunk, last = min(first + chunk, n);
    for (ga_size i = first; i < last; ++i) {
        ga_size rest = i;
        const ga_ssize y2 = rest % length2; rest /= length2;
        const ga_ssize y1 = rest % length1; rest /= length1;
        const ga_ssize y0 = rest % length0; rest /= length0;
        const ga_size channel = rest % channels; rest /= channels;
        const ga_size group = rest % groups, image = rest / groups;
        W sum = 0;
        for (ga_size tap = 0; tap < taps; ++tap) {
            const ga_ssize u0 = y0 + low0 - (ga_ssize)(tap / taps2 / taps1) * dilation0;
            const ga_ssize u1 = y1 + low1 - (ga_ssize)(tap / taps2 % taps1) * dilation1;
            const ga_ssize u2 = y2 + low2 - (ga_ssize)(tap % taps2) * dilation2;
            if (u0 < 0 || u1 < 0 || u2 < 0 || u0 % step0 || u1 % step1 || u2 % step2)
                continue;
            if (u0 / step0 >= out0 || u1 / step1 >= out1 || u2 / step2 >= out2)
                continue;
            const ga_size p = (u0 / step0 * out1 + u1 / step1) * out2 + u2 / step2;
            const ga_size own = flip ? taps - 1 - tap : tap;
            for (ga_size f = group * features; f < (group + 1) * features; ++f)
                sum += LOAD(t[(image * groups * features + f) * plane + p])
                    * LOAD(w[((f * plane + p) * channels + channel) * taps + own]);
        }
        z[i] = STORE(sum);
    }
}
