/* Bessel functions of the first kind in OpenCL C, of orders 0 and 1 and of any order.

Sources, all in Abramowitz and Stegun (1964):

- J0, J1: the power series 9.1.10 up to 5; then Miller's method (9.12, example 1), which goes down the recurrence 9.1.27
  from an order where the function is negligible, and scales by 9.1.46; from 25 on Hankel's expansion, 9.2.5 to 9.2.10,
  where the angles are split, so that sine and cosine of a large argument lose no digits.
- I0, I1: the power series 9.6.10, whose terms all have one sign, up to 20; then the expansion 9.7.1. They do not
  overflow before the results do; SciPy's float64 overflows where the exponential does, from 709.8 on instead of 714.
- Iv: always the power series 9.6.10; except for the first terms of a negative order, its terms have one sign.
- I0e, I1e, Ive: the same functions, scaled by exp(-|x|). For large arguments, Ive is the expansion 9.7.1 where the order
  is small compared with the root of the argument. Elsewhere, the power series is summed from its largest term on.
- Jv: the power series where its terms hardly cancel; Hankel's expansion where the order is small compared with the root
  of the argument; elsewhere Miller's method on orders with the same fractional part, scaled by Neumann's series of a
  power, DLMF 10.23.15, where the recurrence continues to negative orders. */

/* A power series in the square of x / 2: each term is the previous one times sign x^2 / 4 / (k (k + v)). The order is not
a negative integer. */
T bessel_series(T v, T x, int sign)
{
    const T square = sign * x * x / 4;
    T part = 1, sum = 1;
    for (int k = 1; k < 20000; ++k) {
        part *= square / (k * (k + v));
        sum += part;
        if (k + v > 0 && fabs(part) <= fabs(sum) * EPSILON / 4)
            break;
    }
    return sum;
}

T bessel_miller(T x, int order)
{
    int k = 2 * (int)((T)0.85 * x + 10);
    T above = 0, here = (T)1e-20, even = 0, first = 0;
    for (; k > 0; --k) {
        if (k % 2 == 0)
            even += here;
        if (k == 1)
            first = here;
        const T below = 2 * k / x * here - above;
        above = here;
        here = below;
    }
    return (order ? first : here) / (here + 2 * even);
}

/* Hankel's sums, with alternating signs: returns P, the sum of the even terms; Q is the sum of the odd terms. */
T hankel_sums(T v, T x, T *q)
{
    T p = 1, part = 1;
    *q = 0;
    for (int k = 1; k < 200; ++k) {
        const T odd = 2 * k - 1;
        part *= (4 * v * v - odd * odd) / (8 * k * x);
        if (k % 2)
            *q += k % 4 == 1 ? part : -part;
        else
            p += k % 4 == 0 ? part : -part;
        if (fabs(part) < EPSILON / 4)
            break;
    }
    return p;
}

/* The expansion of a growing function, scaled by exp(-x). */
T bessel_scaled(T v, T x)
{
    T part = 1, sum = 1;
    for (int k = 1; k < 40; ++k) {
        const T odd = 2 * k - 1;
        part *= (odd * odd - 4 * v * v) / (8 * k * x);
        sum += part;
        if (fabs(part) < EPSILON / 4)
            break;
    }
    return sum / (sqrt(2 * (T)M_PI) * sqrt(x));
}

T bessel_growing(T x, int order)
{
    const T root = exp(x / 2);
    return root * (root * bessel_scaled(order, x));
}

T j0(T x)
{
    const T size = fabs(x);
    return size < 5 ? bessel_series(0, x, -1) : size < 25 ? bessel_miller(size, 0) : hankel_of_order(0, size);
}

T j1(T x)
{
    const T size = fabs(x);
    if (size < 5)
        return bessel_series(1, x, -1) * x / 2;
    const T value = size < 25 ? bessel_miller(size, 1) : hankel_of_order(1, size);
    return x < 0 ? -value : value;
}

T i0(T x)
{
    const T size = fabs(x);
    return size < 20 ? bessel_series(0, x, 1) : bessel_growing(size, 0);
}

T i1(T x)
{
    const T size = fabs(x);
    if (size < 20)
        return bessel_series(1, x, 1) * x / 2;
    const T value = bessel_growing(size, 1);
    return x < 0 ? -value : value;
}

T i0e(T x)
{
    const T size = fabs(x);
    return size < 20 ? exp(-size) * bessel_series(0, x, 1) : bessel_scaled(0, size);
}

T i1e(T x)
{
    const T size = fabs(x);
    if (size < 20)
        return exp(-size) * bessel_series(1, x, 1) * x / 2;
    const T value = bessel_scaled(1, size);
    return x < 0 ? -value : value;
}

T powers_of_order(T v, T x, int sign)
{
    const T gamma_sign = v < -1 && fmod(floor(v), (T)2) == 0 ? -1 : 1;
    return gamma_sign * exp(v * log(x / 2) - lgamma(v + 1)) * bessel_series(v, x, sign);
}

T hankel_of_order(T v, T x)
{
    T q;
    const T p = hankel_sums(v, x, &q);
    const T turn = (T)M_PI * (fmod(v, (T)4) / 2 + (T)0.25);
    const T s = sin(x), c = cos(x), turn_s = sin(turn), turn_c = cos(turn);
    return (p * (c * turn_c + s * turn_s) - q * (s * turn_c - c * turn_s)) * sqrt(2 / (T)M_PI) / sqrt(x);
}

T miller_of_order(T v, T x)
{
    const long n = (long)floor(v);
    const T fraction = v - n, largest = fmax(x, v);
    long k = 2 * (long)((largest + 15 * cbrt(largest) + 20) / 2);
    T above = 0, here = TINY, weight = 1, sum = 0, wanted = 0;
    for (; k > 0; --k) {
        if (k == n)
            wanted = here;
        if (k % 2 == 0) {
            sum += (fraction + k) * weight * here;
            if (k > 2)
                weight *= (k / 2) / (fraction + k / 2 - 1);
        }
        const T below = 2 * (fraction + k) / x * here - above;
        above = here;
        here = below;
    }
    sum += weight * here;
    const T scale = pow(x / 2, fraction) * weight / (tgamma(1 + fraction) * sum);
    for (; k > n; --k) {
        const T below = 2 * (fraction + k) / x * here - above;
        above = here;
        here = below;
    }
    return scale * (n > 0 ? wanted : here);
}

/* For a negative integer order, the function of the positive order, up to the sign; likewise for negative arguments. */
T jv(T v, T x)
{
    const int whole = floor(v) == v, odd = whole && fmod(v, (T)2) != 0;
    if (isnan(v) || isnan(x) || isinf(x) || (x < 0 && (!whole || isinf(v))))
        return NAN;
    const T order = whole ? fabs(v) : v, size = fabs(x);
    const T sign = odd && (v < 0) != (x < 0) ? -1 : 1;
    if (x == 0 || isinf(v))
        return order == 0 ? 1 : order > 0 ? 0 : copysign((T)INFINITY, tgamma(v + 1));
    if (size < 2 || (order >= 0 && size * size < 8 * (order + 1)))
        return sign * powers_of_order(order, size, -1);
    if (size > 25 && size > order * order / 8)
        return sign * hankel_of_order(order, size);
    return sign * miller_of_order(order, size);
}

T iv(T v, T x)
{
    const int whole = floor(v) == v, odd = whole && fmod(v, (T)2) != 0;
    if (isnan(v) || isnan(x) || isinf(x) || (x < 0 && !whole))
        return NAN;
    const T order = whole ? fabs(v) : v, size = fabs(x);
    const T sign = odd && x < 0 ? -1 : 1;
    if (x == 0 || isinf(v))
        return order == 0 ? 1 : order > 0 ? 0 : INFINITY;
    return sign * powers_of_order(order, size, 1);
}

/* The power series of a nonnegative order, scaled by exp(-x), as multiples of its largest term. */
T scaled_powers(T v, T x)
{
    const T square = x * x / 4, largest = floor((sqrt(v * v + x * x) - v) / 2);
    T sum = 1, part = 1;
    for (T k = largest; k > 0 && part > EPSILON / 16; --k) {
        part *= k * (k + v) / square;
        sum += part;
    }
    part = 1;
    for (T k = largest + 1; part > EPSILON / 16; ++k) {
        part *= square / (k * (k + v));
        sum += part;
    }
    return exp((2 * largest + v) * log(x / 2) - lgamma(largest + 1) - lgamma(largest + v + 1) - x) * sum;
}

T ive(T v, T x)
{
    const int whole = floor(v) == v, odd = whole && fmod(v, (T)2) != 0;
    if (isnan(v) || isinf(v) || isnan(x) || isinf(x) || (x < 0 && !whole))
        return NAN;
    const T order = whole ? fabs(v) : v, size = fabs(x);
    const T sign = odd && x < 0 ? -1 : 1;
    if (x == 0)
        return order == 0 ? 1 : order > 0 ? 0 : NAN;
    if (size > 25 && size > order * order / 8)
        return sign * bessel_scaled(order, size);
    if (size > 25 && order > 0)
        return sign * scaled_powers(order, size);
    return sign * exp(-size) * powers_of_order(order, size, 1);
}
