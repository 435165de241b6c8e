/* Products of words, for both kinds of emulated instructions. */

/* Return the sum of the products of eight words. Vectors keep interpreters, such as Oclgrind, from taking a step per
   number. */
static float product_float32(uint8 u, uint8 v)
{
    const float8 x = as_float8(u & 0xffffe000), w = as_float8(v & 0xffffe000);
    return dot(x.lo, w.lo) + dot(x.hi, w.hi);
}

static float product_float16(uint8 u, uint8 v)
{
    const float16 products = vload_half16(0, (const half *)&u) * vload_half16(0, (const half *)&v);
    const float8 pairs = products.lo + products.hi;
    return dot(pairs.lo + pairs.hi, 1);
}
