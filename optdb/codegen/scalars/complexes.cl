/* Complex numbers in OpenCL C: functions that are more than an operator on a vector of two.

T is float2 or double2, and R the type of its parts. LARGE is approximately where exp overflows, HUGE a quarter of the
largest number, and SMALL the smallest sum of squares that is still accurate.

Products are the plain formula, as in NumPy and in the host's C code. Quotients use the algorithm of R. Smith
("Algorithm 116: Complex division", 1962), which overflows only where the result does, like NumPy's. The hyperbolic
tangent, the square root and the inverse functions use W. Kahan's formulas ("Branch cuts for complex elementary
functions", 1987), which keep the signs of zeros on branch cuts. Limits and signs of zeros follow Annex G of the C
standard, with special cases if the formulas do not yield them. Integer powers up to 100 are repeated products, as in
NumPy; others are powers of e. */

/* The built-in function is many times slower. */
R complex_abs(T z)
{
    const R square = z.x * z.x + z.y * z.y;
    return square > SMALL && !isinf(square) ? sqrt(square) : hypot(z.x, z.y);
}

T complex_acos(T z)
{
    const T a = complex_sqrt((T)(1 - z.x, -z.y)), b = complex_sqrt((T)(1 + z.x, z.y));
    return (T)(2 * atan2(a.x, b.x), asinh(b.x * a.y - b.y * a.x));
}

T complex_acosh(T z)
{
    const T a = complex_sqrt((T)(z.x - 1, z.y)), b = complex_sqrt((T)(z.x + 1, z.y));
    return (T)(asinh(a.x * b.x + a.y * b.y), 2 * atan2(a.y, b.x));
}

T complex_asin(T z)
{
    const T a = complex_sqrt((T)(1 - z.x, -z.y)), b = complex_sqrt((T)(1 + z.x, z.y));
    return (T)(atan2(z.x, a.x * b.x - a.y * b.y), asinh(a.x * b.y - a.y * b.x));
}

T complex_atanh(T z)
{
    const R x = fabs(z.x);
    const R real = log1p(4 * x / ((1 - x) * (1 - x) + z.y * z.y)) / 4;
    return (T)(copysign(real, z.x), atan2(2 * z.y, (1 - z.x) * (1 + z.x) - z.y * z.y) / 2);
}

/* Some compilers reject a scalar condition that selects between vectors. */
T complex_choose(int first, T x, T y)
{
    if (first)
        return x;
    return y;
}

T complex_cos(T z)
{
    return complex_cosh((T)(-z.y, z.x));
}

T complex_cosh(T z)
{
    if (z.y == 0)
        return (T)(cosh(z.x), isfinite(z.x) ? z.x * z.y : copysign(z.y, z.x * z.y));
    if (z.x == 0)
        return (T)(cos(z.y), z.x * sin(z.y));
    if (isinf(z.x) && !isfinite(z.y))
        return (T)(fabs(z.x), NAN);
    R c;
    const R s = sincos(z.y, &c);
    return (T)(cosh(z.x) * c, sinh(z.x) * s);
}

T complex_div(T x, T y)
{
    if (fabs(y.x) >= fabs(y.y)) {
        if (y.x == 0)
            return (T)(x.x / fabs(y.x), x.y / fabs(y.x));
        const R part = y.y / y.x, scale = 1 / (y.x + y.y * part);
        return (T)((x.x + x.y * part) * scale, (x.y - x.x * part) * scale);
    }
    const R part = y.x / y.y, scale = 1 / (y.y + y.x * part);
    return (T)((x.x * part + x.y) * scale, (x.y * part - x.x) * scale);
}

int complex_eq(T x, T y)
{
    return x.x == y.x && x.y == y.y;
}

T complex_exp(T z)
{
    if (z.y == 0)
        return (T)(exp(z.x), z.y);
    if (isinf(z.x) && !isfinite(z.y))
        return z.x < 0 ? (T)(0, 0) : (T)(z.x, NAN);
    if (z.x > LARGE)
        return complex_polar(exp(z.x / 2), z.y) * exp(z.x / 2);
    return complex_polar(exp(z.x), z.y);
}

T complex_expm1(T z)
{
    const R half_way = sin(z.y / 2);
    return (T)(expm1(z.x) * cos(z.y) - 2 * half_way * half_way, exp(z.x) * sin(z.y));
}

T complex_log(T z)
{
    const R size = complex_abs(z);
    R real = log(size);
    if (size > (R)0.5 && size < 2) {
        const R large = fmax(fabs(z.x), fabs(z.y)), small = fmin(fabs(z.x), fabs(z.y));
        real = log1p((large - 1) * (large + 1) + small * small) / 2;
    } else if (isinf(size) && isfinite(z.x) && isfinite(z.y)) {
        real = log(hypot(z.x / 4, z.y / 4)) + (R)1.3862943611198906;
    }
    return (T)(real, atan2(z.y, z.x));
}

T complex_mul(T x, T y)
{
    return (T)(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x);
}

T complex_mul_without_zeros(T x, T y)
{
    if (x.x == 0 && x.y == 0)
        return y;
    if (y.x == 0 && y.y == 0)
        return x;
    return complex_mul(x, y);
}

T complex_polar(R size, R angle)
{
    R c;
    const R s = sincos(angle, &c);
    return (T)(size * c, size * s);
}

T complex_pow(T x, T y)
{
    if (y.x == 0 && y.y == 0)
        return (T)(1, 0);
    if (x.x == 0 && x.y == 0)
        return y.x > 0 && y.y == 0 ? (T)(0, 0) : (T)(NAN, NAN);
    if (y.y != 0 || !(fabs(y.x) < 100) || rint(y.x) != y.x)
        return complex_exp(complex_mul(y, complex_log(x)));
    if (y.x == 1)
        return x;
    T result = (T)(1, 0);
    for (int left = (int)fabs(y.x); left != 0; left >>= 1) {
        if (left & 1)
            result = complex_mul(result, x);
        if (left > 1)
            x = complex_mul(x, x);
    }
    return y.x < 0 ? complex_div((T)(1, 0), result) : result;
}

T complex_sinh(T z)
{
    if (z.y == 0)
        return (T)(sinh(z.x), z.y);
    if (z.x == 0)
        return (T)(z.x * cos(z.y), sin(z.y));
    if (isinf(z.x) && !isfinite(z.y))
        return (T)(z.x, NAN);
    R c;
    const R s = sincos(z.y, &c);
    return (T)(sinh(z.x) * c, cosh(z.x) * s);
}

T complex_sqrt(T z)
{
    if (z.x == 0 && z.y == 0)
        return (T)(0, z.y);
    if (isinf(z.y))
        return (T)(INFINITY, z.y);
    if (isinf(z.x)) {
        const R rest = z.y - z.y;
        return z.x < 0 ? (T)(fabs(rest), copysign(z.x, z.y)) : (T)(z.x, copysign(rest, z.y));
    }
    R scale = 1;
    if (fabs(z.x) > HUGE || fabs(z.y) > HUGE) {
        z /= 4;
        scale = 2;
    }
    const R root = sqrt((fabs(z.x) + complex_abs(z)) / 2);
    if (z.x >= 0)
        return (T)(scale * root, scale * (z.y / (2 * root)));
    return (T)(scale * (fabs(z.y) / (2 * root)), scale * copysign(root, z.y));
}

T complex_tanh(T z)
{
    if (z.y == 0)
        return (T)(tanh(z.x), z.y);
    if (fabs(z.x) > 22) {
        const R rest = isfinite(z.y) ? 4 * sin(z.y) * cos(z.y) * exp(-2 * fabs(z.x)) : isinf(z.x) ? 0 : (R)NAN;
        return (T)(isfinite(z.y) || isinf(z.x) ? copysign((R)1, z.x) : (R)NAN, rest);
    }
    const R t = tan(z.y), s = sinh(z.x);
    const R steep = 1 + t * t, below = 1 + steep * s * s;
    return (T)(steep * sqrt(1 + s * s) * s / below, t / below);
}

/* TURNED is asinh, atan, sin or tan: -i times the value of OTHER at i z. */
T TURNED(T z)
{
    const T turned = OTHER((T)(-z.y, z.x));
    return (T)(turned.y, -turned.x);
}
