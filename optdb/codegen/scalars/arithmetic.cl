/* Arithmetic, and short functions.

Integers: division by zero gives zero, as in NumPy; no function traps. */

T int_div(T x, T y)
{
    if (y == 0)
        return 0;
    if (y == (T)-1)
        return (T)(0 - (U)x);
    T quotient = x / y;
    return quotient - ((x % y != 0) && ((x < 0) != (y < 0)));
}

T uint_div(T x, T y)
{
    return y == 0 ? 0 : x / y;
}

T int_mod(T x, T y)
{
    if (y == 0 || y == (T)-1)
        return 0;
    T rest = x % y;
    return (rest != 0 && ((rest < 0) != (y < 0))) ? rest + y : rest;
}

T uint_mod(T x, T y)
{
    return y == 0 ? 0 : x % y;
}

/* The remainder is exact, so the quotient is an integer except for rounding in its last bits. */
T float_div(T x, T y)
{
    if (y == 0)
        return x / y;
    T rest = fmod(x, y);
    T quotient = (x - rest) / y;
    if (rest != 0 && ((y < 0) != (rest < 0)))
        quotient -= 1;
    if (quotient == 0)
        return copysign((T)0, x / y);
    T whole = floor(quotient);
    return quotient - whole > (T)0.5f ? whole + 1 : whole;
}

T float_mod(T x, T y)
{
    T rest = fmod(x, y);
    if (y == 0)
        return rest;
    if (rest == 0)
        return copysign((T)0, y);
    return (y < 0) != (rest < 0) ? rest + y : rest;
}

T int_pow(T x, T y)
{
    if (y < 0)
        return x == 1 ? 1 : x == (T)-1 ? ((y & 1) ? x : 1) : 0;
    return uint_pow(x, y);
}

T uint_pow(T x, T y)
{
    U base = (U)x, result = 1;
    for (U left = (U)y; left != 0; left >>= 1) {
        if (left & 1)
            result *= base;
        base *= base;
    }
    return (T)result;
}

T fast_sigmoid(T twice)
{
    T x = fabs(twice) / 2;
    T z = x < (T)1.7 ? (T)1.5 * x / (1 + x)
         : x < 3 ? (T)0.935409070603099 + (T)0.0458812946797165 * (x - (T)1.7)
         : (T)0.99505475368673;
    return (copysign(z, twice) + 1) / 2;
}

/* Poles and limits are as in C99 (annex F.9.5.4), Theano's C code and SciPy 1.15, because drivers differ. */
T gamma(T x)
{
    if (x == 0)
        return copysign((T)INFINITY, x);
    return x < 0 && floor(x) == x ? (T)NAN : tgamma(x);
}

T gammaln(T x)
{
    return x < 0 && isinf(x) ? x : lgamma(x);
}

float round_half(T x)
{
    ushort bits;
    vstore_half(x, 0, (half *)&bits);
    return vload_half(0, (const half *)&bits);
}
