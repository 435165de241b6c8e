/* Scaled and inverse error functions in OpenCL C.

Sources:

- erfcx: the continued fraction 7.1.14 of Abramowitz and Stegun (1964), from its end; for small numbers, the product
  that it is derived from; for negative numbers, the reflection.
- the inverse functions: the approximation of Winitzki, "A handy approximation for the error function and its inverse"
  (2008), accurate to two digits or more, then steps of Halley's method, each of which triples the digits. In the tails,
  the steps compare erfcx(y) with z e^(y^2), which are accurate where erfc(y) and z may be tiny. */

T erfcx_positive(T x)
{
    if (x < 3)
        return exp(x * x) * erfc(x);
    T fraction = 0;
    for (int n = 32; n > 0; --n)
        fraction = n * (T)0.5 / (x + fraction);
    return (T)0.5641895835477563 / (x + fraction);
}

T erfcx(T x)
{
    return x < 0 ? 2 * exp(x * x) - erfcx_positive(-x) : erfcx_positive(x);
}

/* The first guess, from log(1 - x^2). */
T erf_guess(T logarithm)
{
    const T middle = (T)4.330746750799873 + logarithm / 2;
    const T part = -logarithm * (T)6.802721088435375;
    const T root = sqrt(middle * middle + part);
    return sqrt(middle > 0 ? part / (root + middle) : root - middle);
}

/* Find where erfc is z, for z up to a half. */
T erfc_tail(T z)
{
    const T logarithm = log(z);
    T y = erf_guess(logarithm + log(2 - z));
    for (int i = 0; i < 3; ++i) {
        const T step = (exp(y * y + logarithm) - erfcx(y)) * (T)0.8862269254527579;
        y -= step / (1 + step * y);
    }
    return y;
}

T erfinv(T x)
{
    const T size = fabs(x);
    if (!(size < 1))
        return size == 1 ? copysign((T)INFINITY, x) : (T)NAN;
    if (size > (T)0.5)
        return copysign(erfc_tail(1 - size), x);
    T y = erf_guess(log1p(-size * size));
    for (int i = 0; i < 3; ++i) {
        const T step = (erf(y) - size) * (T)0.8862269254527579 * exp(y * y);
        y -= step / (1 + step * y);
    }
    return copysign(y, x);
}

T erfcinv(T z)
{
    if (!(z > 0 && z < 2))
        return z == 0 ? (T)INFINITY : z == 2 ? -(T)INFINITY : (T)NAN;
    if (z > (T)0.5 && z < (T)1.5)
        return erfinv(1 - z);
    return z < 1 ? erfc_tail(z) : -erfc_tail(2 - z);
}
