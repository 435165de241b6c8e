/* Relatives of the gamma function in OpenCL C: derivatives of its logarithm, and incomplete gamma functions.

Sources, by equation:

- digamma and trigamma: Abramowitz and Stegun (1964): the recurrences 6.3.5 and 6.4.6 up to where the asymptotic series
  6.3.18 and 6.4.12 are accurate, and the reflections 6.3.7 and 6.4.7 for negative numbers. Near the positive zero of
  digamma, its Taylor series, whose coefficients are Hurwitz zeta functions (DLMF 5.15.1), so that no digits are lost.
- incomplete gamma functions: the series 8.7.1 and 8.7.3 of the DLMF, the continued fraction 8.9.2 by the method of
  Lentz as modified by Thompson and Barnett (1986), and for parameters above 100000 Temme's uniform expansion, 8.12.
  Their common factor is written as a power of e by Stirling's series (DLMF 5.11.1), after Loader, "Fast and accurate
  computation of binomial probabilities" (2000): the large parts of the exponent cancel before they are rounded. Near 1,
  the logarithm of the gamma function is 6.1.33 of Abramowitz and Stegun. For parameters below 10, the common factor
  contains the gamma function itself, which is a polynomial between 1 and 2 and has the recurrence 6.1.15.

At poles and limits, all functions return the same values as SciPy, which the host calls. */

T psi_positive(T x)
{
    if (x > (T)1.2 && x < (T)1.75) {  /* the zero is subtracted in three parts, each of which is exact in float32 */
        const T d = x - (T)1.4616321325302124 - (T)1.243815006546356e-08 - (T)-1.2654465062537432e-16;
        return d * POLYNOMIAL(d, PSI_AT_ZERO);
    }
    T sum = 0;
    for (; x < 10; x += 1)
        sum -= 1 / x;
    const T y = 1 / (x * x);
    return sum + (log(x) - 1 / (2 * x)) - y * POLYNOMIAL(y, PSI);
}

T psi(T x)
{
    if (x > 0 || isnan(x))
        return psi_positive(x);
    if (x == 0)
        return copysign((T)INFINITY, -x);
    if (floor(x) == x)
        return NAN;
    return psi_positive(1 - x) - (T)M_PI / tan((T)M_PI * (x - rint(x)));
}

T trigamma_positive(T x)
{
    T sum = 0;
    for (; x < 10; x += 1)
        sum += 1 / (x * x);
    const T y = 1 / (x * x);
    return sum + 1 / x + y / 2 + y / x * POLYNOMIAL(y, TRI_GAMMA);
}

T trigamma(T x)
{
    if (x > 0 || isnan(x))
        return trigamma_positive(x);
    if (floor(x) == x)
        return INFINITY;
    const T s = sin((T)M_PI * (x - rint(x)));
    return (T)(M_PI * M_PI) / (s * s) - trigamma_positive(1 - x);
}

/* log(1 + u) - u, where 1 + u is y. With r = u / (2 + u), the logarithm is 2 (r + r^3 / 3 + r^5 / 5 + ...). */
T log_less(T u, T y)
{
    if (fabs(u) > (T)0.4)
        return log(y) - u;
    const T r = u / (2 + u), s = r * r;
    return r * (2 * s * POLYNOMIAL(s, LOG_LESS) - u);
}

/* x^a e^-x / gamma(a + 1) */
T gamma_front(T a, T x)
{
    if (a < 10) {
        T factor = 1, rest = a;
        for (; rest > 1; rest -= 1)
            factor *= rest;
        const T d = rest - (T)0.5;
        return exp(a * log(x) - x) / (factor * POLYNOMIAL(d, GAMMA_OF_1_TO_2));
    }
    const T y = 1 / (a * a);
    const T stirling = POLYNOMIAL(y, STIRLING) / a;
    return exp(a * log_less((x - a) / a, x / a) - stirling) / sqrt(2 * (T)M_PI * a);
}

T ln_gamma_near_1(T a)
{
    if (a > (T)0.5)
        return lgamma(a + 1);
    return a * (T)0.42278433509846713 - log1p(a) + a * a * POLYNOMIAL(a, LN_GAMMA_NEAR_1);
}

T gamma_series(T a, T x)
{
    T sum = 1, part = 1, n = a;
    for (int i = 0; i < 8192 && part > sum * EPSILON; ++i) {
        n += 1;
        part *= x / n;
        sum += part;
    }
    return gamma_front(a, x) * sum;
}

T gamma_fraction(T a, T x)
{
    const T tiny = TINY;
    T b = x + 1 - a, c = 1 / tiny, d = 1 / b, fraction = d;
    for (int i = 1; i < 8192; ++i) {
        const T top = i * (a - i);
        b += 2;
        d = top * d + b;
        c = b + top / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        fraction *= d * c;
        if (fabs(d * c - 1) < EPSILON)
            break;
    }
    return gamma_front(a, x) * a * fraction;
}

/* For small arguments: 1 minus the leading power, minus the rest of the series. */
T gamma_small(T a, T x)
{
    T part = 1, sum = 0;
    for (int n = 1; n < 64; ++n) {
        part *= -x / n;
        sum += part / (a + n);
        if (fabs(part) <= fabs(sum) * EPSILON)
            break;
    }
    const T power = a * log(x) - ln_gamma_near_1(a);
    return -expm1(power) - exp(power) * a * sum;
}

/* The upper or the lower function. */
T gamma_uniform(T a, T x, int upper)
{
    const T u = (x - a) / a;
    const T half_square = -log_less(u, x / a);
    const T h = copysign(sqrt(2 * half_square), u);
    const T rest = exp(-a * half_square) / sqrt(2 * (T)M_PI * a)
        * (POLYNOMIAL(h, TEMME_0) + POLYNOMIAL(h, TEMME_1) / a);
    const T z = h * sqrt(a / 2);
    return upper ? erfc(z) / 2 + rest : erfc(-z) / 2 - rest;
}

T gammaincc(T a, T x)
{
    if (isnan(a) || isnan(x) || a < 0 || x < 0)
        return NAN;
    if (a == 0)
        return x > 0 ? 0 : (T)NAN;
    if (x == 0)
        return 1;
    if (isinf(a))
        return isinf(x) ? (T)NAN : 1;
    if (isinf(x))
        return 0;
    if (a > 100000)
        return fabs(x - a) > a / 4 ? x < a : gamma_uniform(a, x, 1);
    if (x > (T)1.1)
        return x < a ? 1 - gamma_series(a, x) : gamma_fraction(a, x);
    if (x <= (T)0.5 ? a * log(x) < (T)-0.4 : a > (T)1.1 * x)
        return 1 - gamma_series(a, x);
    return gamma_small(a, x);
}

T gammainc(T a, T x)
{
    if (!(a > 0 && x > 0) || isinf(a) || isinf(x))
        return 1 - gammaincc(a, x);
    if (a > 100000)
        return fabs(x - a) > a / 4 ? x > a : gamma_uniform(a, x, 0);
    return x > 1 && x > a ? 1 - gammaincc(a, x) : gamma_series(a, x);
}

T chi2sf(T x, T k)
{
    if (isnan(x) || !(k > 0))
        return NAN;
    return x <= 0 ? 1 : isinf(x) ? 0 : gammaincc(k / 2, x / 2);
}

T gammau(T a, T x)
{
    return gammaincc(a, x) * gamma(a);
}

T gammal(T a, T x)
{
    return gammainc(a, x) * gamma(a);
}
