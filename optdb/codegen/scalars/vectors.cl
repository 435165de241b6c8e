/* Special functions of vectors in OpenCL C. Each lane is computed as if it were alone: values are selected by lane, and a
branch only skips code whose values no lane needs. Comparisons are not negated, and ?: does not choose between constants,
because Oclgrind then gives wrong results for vectors.

- gammaln and psi: from 5.125 on, Stirling's formula (DLMF 5.11.1) and its derivative, with polynomials in 1 / x^2 in
  place of the asymptotic series. For smaller numbers, the recurrences DLMF 5.5.1 and 5.5.2 shift the argument to z
  between 1.125 and 2.125, where a polynomial is multiplied by the distances to the zeros, so that no digits are lost
  near them. For negative numbers, the reflections DLMF 5.5.3 and 5.5.4. For gammaln, the recurrence then begins at 20,
  because the logarithms of a large and of a small number would cancel.
- erfcx: a polynomial in (x - 3.75) / (x + 3.75), divided by x + 1/2, as in Shepherd and Laframboise, "Chebyshev
  approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < infinity" (1981); for negative numbers, the reflection.
- erf and erfc: a polynomial in x^2 for small numbers, otherwise the product of erfcx and exp(-x^2).
- the inverse error functions: polynomials in the logarithm of 1 - x^2 and in its root, as in Giles, "Approximating the
  erfinv function" (2011); in the tails, one step of Halley's method follows, which triples the digits.
- pow: the exponential of y log(x). The logarithm and the product are sums of two numbers, whose roundings are computed
  as in Dekker, "A floating-point technique for extending the available precision" (1971).
- gamma: the exponential of Stirling's formula, with the same sums; for smaller numbers, a polynomial between 1.125 and
  2.125 and the recurrence, and for negative numbers, the reflection. */

/* Return the `rest` of factor * (log(product) - less) + rest, the logarithm of the gamma function of x >= 0. */
T ln_gamma_parts(T x, T *product, T *factor, T *less)
{
    const T step = ceil(x - (T)0.125);
    *product = x;
    *factor = x - (T)0.5;
    *less = 1;
    T rest = 0;
    if (any(step > 5)) {
        const T inverse = 1 / x, y = inverse * inverse;
        rest = (T)0.4189385332046727 + inverse * POLYNOMIAL(y, STIRLING_FROM_5);
    }
    if (!any(step <= 5))
        return rest;
    const T to_zero = x - step, d = to_zero + (T)0.375;  /* z - 2, and the distance to the middle of the interval */
    T shifted = step <= 0 ? x * (x + 1) : step <= 1 ? x : step <= 2 ? (T)1 : x - 1;
    shifted *= step > 3 ? x - 2 : (T)1;
    shifted *= step > 4 ? x - 3 : (T)1;
    *product = step <= 5 ? shifted : *product;
    *factor = step <= 5 ? select((T)1, (T)-1, step <= 1) : *factor;
    *less = select((T)1, (T)0, step <= 5);
    return step <= 5 ? to_zero * (to_zero + 1) * POLYNOMIAL(d, LN_GAMMA_OF_1_TO_2) : rest;
}

T gammaln(T x)
{
    T size = fabs(x), product, factor, less;
    /* Between -EPSILON and 0, the values are those of positive numbers, and the reflection would lose denormal numbers. */
    if (!any(x < -EPSILON)) {
        const T rest = ln_gamma_parts(size, &product, &factor, &less);
        return factor * (log(product) - less) + rest;
    }
    const T r = size - rint(size), square = r * r;
    T scale = x < -EPSILON ? size * fabs(r) * POLYNOMIAL(square, SINC) : (T)1;
    for (;;) {
        const T shift = select((T)0, (T)1, x < -EPSILON && size > (T)5.125 && size < 20);
        if (!any(shift > 0))
            break;
        size -= shift;
        scale *= shift > 0 ? size : (T)1;
    }
    const T rest = ln_gamma_parts(size, &product, &factor, &less);
    product = less > 0 ? product : factor < 0 ? product / scale : product * scale;
    const T value = factor * (log(product) - less) + rest + (less > 0 ? log(scale) : (T)0);
    return !(x < -EPSILON) ? value : x == -INFINITY ? x : r == 0 ? (T)INFINITY : -value;
}

T psi_positive(T x)
{
    const T step = ceil(x - (T)0.125);
    T value = 0;
    if (!all(step <= 5)) {
        const T inverse = 1 / x, y = inverse * inverse;
        value = log(x) - inverse / 2 - y * POLYNOMIAL(y, PSI_FROM_5);
    }
    if (!any(step <= 5))
        return value;
    /* The sum of the reciprocals in the recurrence is over / under. */
    T under = step <= 0 ? x * (x + 1) : step <= 1 ? x : step <= 2 ? (T)1 : x - 1;
    T over = step <= 0 ? -1 - 2 * x : select(select((T)1, (T)0, step <= 2), (T)-1, step <= 1);
    over = step > 3 ? over * (x - 2) + under : over;
    under *= step > 3 ? x - 2 : (T)1;
    over = step > 4 ? over * (x - 3) + under : over;
    under *= step > 4 ? x - 3 : (T)1;
    const T z = x - (step - 2), d = z - (T)1.625;
    /* The zero is subtracted in three parts, each of which is exact in float32. */
    const T to_zero = z - (T)1.4616321325302124 - (T)1.243815006546356e-08 - (T)-1.2654465062537432e-16;
    return step <= 5 ? to_zero * POLYNOMIAL(d, PSI_OF_1_TO_2) + over / under : value;
}

T psi(T x)
{
    const T value = psi_positive(x > 0 ? x : 1 - x);
    if (!any(x <= 0))
        return value;
    const T reflected = value - (T)M_PI / tan((T)M_PI * (x - rint(x)));
    return x == 0 ? copysign((T)INFINITY, -x) : x > 0 ? value : floor(x) == x ? (T)NAN : reflected;
}

T erfcx_positive(T x)
{
    const T t = 1 - (T)7.5 / (x + (T)3.75);
    return POLYNOMIAL(t, ERFCX) / (x + (T)0.5);
}

T erfcx(T x)
{
    const T value = erfcx_positive(fabs(x));
    if (!any(x < 0))
        return value;
    return x < 0 ? 2 * exp(x * x) - value : value;
}

/* Return x y - product, where product is x y rounded. */
T product_error(T x, T y, T product)
{
    const T x_split = x * SPLIT, x_high = x_split - (x_split - x), x_low = x - x_high;
    const T y_split = y * SPLIT, y_high = y_split - (y_split - y), y_low = y - y_high;
    return ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low;
}

T erf(T x)
{
    const T size = fabs(x), square = x * x;
    const T value = x * POLYNOMIAL(square, ERF);
    if (all(size <= 1))
        return value;
    return size <= 1 ? value : copysign(1 - exp(-square) * erfcx_positive(size), x);
}

T erfc(T x)
{
    const T size = fabs(x), square = x * x;
    const T value = 1 - x * POLYNOMIAL(square, ERF);
    if (all(size <= (T)0.5))
        return value;
    /* The rounding error of the square would be a relative error of its exponential. */
    const T near = size > 30 ? (T)30 : size, rounded = near * near, power = exp(-rounded);
    const T tail = (power - power * product_error(near, near, rounded)) * erfcx_positive(size);
    return size <= (T)0.5 ? value : x < 0 ? 2 - tail : tail;
}

/* The inverse of the error function at x = 1 - z, for 0 <= x < 1. */
T erf_inverse(T x, T z)
{
    const T w = -log(z * (2 - z)), d = w - (T)2.5;
    const T value = x * POLYNOMIAL(d, ERFINV_CENTRE);
    if (!any(w > 5))
        return value;
    const T root = sqrt(w), r = 1 / root, y = root * POLYNOMIAL(r, ERFINV_TAIL);
    const T step = (exp(y * y + log(z)) - erfcx_positive(y)) * (T)0.8862269254527579;
    return w > 5 ? y - step / (1 + step * y) : value;
}

T erfinv(T x)
{
    const T size = fabs(x), value = erf_inverse(size, 1 - size);
    return copysign(size < 1 ? value : select((T)NAN, (T)INFINITY, size == 1), x);
}

T erfcinv(T z)
{
    const T small = z > 1 ? 2 - z : z, value = erf_inverse(1 - small, small);
    const T size = small > 0 ? value : select((T)NAN, (T)INFINITY, small == 0);
    return z > 1 ? -size : size;
}

/* Return the low part of the logarithm of 2^k m, which is that of 2^k `centre` plus 2 atanh(s); `high` is the high part. */
T log_in_two_parts(T x, T *high)
{
    const T scaled = x < LEAST ? x / EPSILON : x;
    const U bits = AS_U(scaled) - AS_U((T)0.7071067811865476) + AS_U((T)1);
    const T m = AS_T((bits & (((U)1 << MANTISSA) - 1)) + AS_U((T)0.7071067811865476));
    const T biased = AS_T((bits >> MANTISSA) | AS_U(1 / (T)EPSILON)) - 1 / (T)EPSILON;
    const T k = biased - select((T)BIAS, (T)(BIAS + MANTISSA), x < LEAST);
    const T eighths = rint(m * 8), centre = eighths / 8;
    const T f = m - centre, d = m + centre, s = f / d, square = s * s;
    const T remainder = (f - s * d) - product_error(s, d, s * d) - s * (m - (d - centre));
    /* The logarithms of `centre` and of 2. The first parts have 16 bits after the point, so that their sum is exact. */
    T first = select((T)0.318450927734375, (T)0.22314453125, eighths < 11);
    first = select(first, (T)0.1177825927734375, eighths < 10);
    first = select(first, (T)0, eighths < 9);
    first = select(first, (T)-0.1335296630859375, eighths < 8);
    first = select(first, (T)-0.287689208984375, eighths < 7);
    T second = select((T)2.8033841596158103e-06, (T)-9.799357902442336e-07, eighths < 11);
    second = select(second, (T)4.428829459545388e-07, eighths < 10);
    second = select(second, (T)0, eighths < 9);
    second = select(second, (T)-1.7295385851231463e-06, eighths < 8);
    second = select(second, (T)7.136532594072561e-06, eighths < 7);
    first += k * (T)0.693145751953125;
    second += k * (T)1.4286068203094173e-06;
    const T sum = first + 2 * s;
    const T rest = (2 * s - (sum - first)) + (second + 2 * (remainder / d + s * square * POLYNOMIAL(square, ATANH)));
    *high = sum + rest;
    return rest - (*high - sum);
}

/* exp(high + low), without the rounding error of exp(high). */
T exp_of_two_parts(T high, T low)
{
    const T to_bits = (T)1.5 / EPSILON;  /* added to a whole number, moves it to the last bits */
    const T k = (high * (T)1.4426950408889634 + to_bits) - to_bits;
    const T r = high - k * (T)0.693145751953125, less = low - k * (T)1.4286068203094173e-06;
    const T s = r + less, power = 1 + s;
    const T rest = (s - (power - 1)) + ((less - (s - r)) + s * s * POLYNOMIAL(s, EXP));
    /* Two factors of about the same size: results may be denormal, or overflow only in the last product. */
    const T half_k = rint(k / 2);
    const T first = AS_T((AS_U(half_k + to_bits) << MANTISSA) + AS_U((T)1));
    const T second = AS_T((AS_U(k - half_k + to_bits) << MANTISSA) + AS_U((T)1));
    return (power + rest) * first * second;
}

/* Poles and limits are as in C99. */
T pow(T x, T y)
{
    const T size = fabs(x), exponent = y > (T)1e25 ? (T)1e25 : y < (T)-1e25 ? (T)-1e25 : y;
    const int ordinary = all(x > 0 && x < INFINITY && y == y);
    T high;
    const T low = log_in_two_parts(size, &high);
    if (!ordinary)
        high = size == 0 ? -(T)INFINITY : size == INFINITY ? size : high;
    const T product = exponent * high;
    const T power = product > LOG_MAX ? (T)LOG_MAX : product < -LOG_MAX ? (T)-LOG_MAX : product;
    const T error = product_error(exponent, high, product) + exponent * low;
    T value = exp_of_two_parts(power, power == product ? error : (T)0);
    if (ordinary)
        return value;
    const T halved = y / 2;
    value = rint(y) == y && rint(halved) != halved && copysign((T)1, x) < 0 ? -value : value;
    value = x < 0 && size < INFINITY && rint(y) != y ? (T)NAN : x != x ? x : value;
    return x == 1 || y == 0 ? (T)1 : value;
}

/* Return the gamma function of x >= 0 up to 5.125, and for larger numbers 1; its logarithm is then high + low. */
T gamma_parts(T x, T *high, T *low)
{
    const T step = ceil(x - (T)0.125);
    *high = *low = 0;
    if (any(step > 5)) {
        const T factor = x - (T)0.5, inverse = 1 / x, y = inverse * inverse;
        T log_high;
        const T log_low = log_in_two_parts(x, &log_high);
        const T product = factor * log_high, difference = product - x;
        const T exact = product_error(factor, log_high, product) + factor * log_low + ((product - difference) - x);
        const T rest = exact + ((T)0.9189385332046728 + inverse * POLYNOMIAL(y, STIRLING_FROM_5));
        *high = step > 5 ? difference + rest : (T)0;
        *low = step > 5 ? rest - (*high - difference) : (T)0;
    }
    T over = select((T)1, x - 1, step > 2);
    over *= select((T)1, x - 2, step > 3);
    over *= select((T)1, x - 3, step > 4);
    T under = step <= 0 ? x * (x + 1) : x;
    under = step <= 1 ? under : (T)1;
    const T d = x - step + (T)0.375;
    const T value = over * POLYNOMIAL(d, GAMMA_NEAR_2) / under;
    return step > 5 ? (T)1 : value;
}

/* Poles and limits are as in gamma of numbers. */
T gamma(T x)
{
    const T size = fabs(x);
    T high, low;
    const T factor = gamma_parts(size > 1000 ? (T)1000 : size, &high, &low);
    T value = factor * exp_of_two_parts(high > LOG_MAX ? (T)LOG_MAX : high, low);
    value = size < EPSILON ? 1 / x : value;
    if (!any(x < -EPSILON))
        return value;
    const T whole = rint(size), r = size - whole, square = r * r, halved = whole / 2;
    /* Two factors, because the reciprocal may be denormal although the result is not. */
    const T half_log = high / 2 > LOG_MAX ? (T)LOG_MAX : high / 2;
    const T root = exp_of_two_parts(-half_log, low / -2);
    const T reflected = root / (factor * size * r * POLYNOMIAL(square, SINC)) * root;
    const T negative = rint(halved) == halved ? -reflected : reflected;
    return x < -EPSILON ? (r == 0 || size == INFINITY ? (T)NAN : negative) : value;
}
