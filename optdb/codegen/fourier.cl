/* Passes of Fourier transforms, see real_fourier.py. */

static inline T fft_mul(T a, T b)
{
    return (T)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

/* The table has forward twiddle factors, e to the power of -2 pi i k / n. */
static inline T fft_root(const GLOBAL_MEM T *w, ga_size k, ga_ssize way)
{
    return (T)(w[k].x, way < 0 ? w[k].y : -w[k].y);
}

/* A radix-4 pass, after passes for factors whose product is s. */
KERNEL void fft_four(ga_size total, ga_size each, ga_size n, ga_size s, ga_ssize way, ARRAY T *x, ARRAY T *z,
    ARRAY T *w)
{
    const ga_size quarter = n / 4, m = quarter / s;
    ga_size i = get_global_id(0) * each;
    const ga_size stop = min(i + each, total);
    ga_size q = i % s, p = i / s % m, row = i / quarter;
    for (; i < stop; ++i) {
        const GLOBAL_MEM T *from = x + row * n + p * s + q;
        GLOBAL_MEM T *to = z + row * n + p * s * 4 + q;
        const T a = from[0], b = from[quarter], c = from[2 * quarter], d = from[3 * quarter];
        const T even = a + c, odd = a - c, sum = b + d, turn = b - d;
        const T turned = way < 0 ? (T)(turn.y, -turn.x) : (T)(-turn.y, turn.x);
        to[0] = even + sum;
        to[s] = fft_mul(odd + turned, fft_root(w, p * s, way));
        to[2 * s] = fft_mul(even - sum, fft_root(w, 2 * p * s, way));
        to[3 * s] = fft_mul(odd - turned, fft_root(w, 3 * p * s, way));
        if (++q == s) {
            q = 0;
            if (++p == m) {
                p = 0;
                ++row;
            }
        }
    }
}

/* A pass for any factor r, one result at a time. */
KERNEL void fft_factor(ga_size total, ga_size each, ga_size n, ga_size s, ga_size r, ga_ssize way, ARRAY T *x,
    ARRAY T *z, ARRAY T *w)
{
    const ga_size part = n / r, m = part / s;
    ga_size i = get_global_id(0) * each;
    const ga_size stop = min(i + each, total);
    ga_size q = i % s, k = i / s % r, p = i / (s * r) % m, row = i / n;
    for (; i < stop; ++i) {
        const GLOBAL_MEM T *from = x + row * n + p * s + q;
        T sum = from[0];
        ga_size turn = 0;
        for (ga_size t = 1; t < r; ++t) {
            turn += k;
            turn -= turn >= r ? r : 0;
            sum += fft_mul(from[t * part], fft_root(w, turn * part, way));
        }
        z[i] = fft_mul(sum, fft_root(w, p * k * s, way));
        if (++q == s) {
            q = 0;
            if (++k == r) {
                k = 0;
                if (++p == m) {
                    p = 0;
                    ++row;
                }
            }
        }
    }
}

/* Multiply rows of x by w up to `limit`, and fill the rest with zeros. */
KERNEL void fft_times(ga_size total, ga_size each, ga_size nx, ga_size nz, ga_size limit, ARRAY T *x, ARRAY T *z,
    ARRAY T *w)
{
    ga_size i = get_global_id(0) * each;
    const ga_size stop = min(i + each, total);
    for (; i < stop; ++i) {
        const ga_size row = i / nz, j = i % nz;
        z[i] = j < limit ? fft_mul(x[row * nx + j], w[j]) : (T)(0, 0);
    }
}

/* All n coefficients of a real row, from its first h ones. */
OUTLINED_KERNEL void fft_mirror(ga_size total, ga_size each, ga_size h, ga_size n, ARRAY T *x, ARRAY T *z)
{
    ga_size i = get_global_id(0) * each;
    const ga_size stop = min(i + each, total);
    for (; i < stop; ++i) {
        const ga_size row = i / n, j = i % n;
        const ga_size k = j <= n / 2 ? j : n - j;
        const T there = k < h ? x[row * h + k] : (T)(0, 0);
        z[i] = (T)(there.x, k == 0 || 2 * k == n ? 0 : k == j ? there.y : -there.y);
    }
}
