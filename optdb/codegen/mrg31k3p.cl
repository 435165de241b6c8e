/* Uniform random numbers from MRG31k3p, see random_numbers.py.

The state has a row of six numbers for each stream. STEP advances by one number: LANES streams in vectors, or one
stream. Arithmetic is unsigned, because overflow of signed integers is undefined, except shifts and comparisons that
need the sign: a seed may be negative. The result is an integer below 2^31. */

static inline INT STEP(UINT *x)
{
    UINT y = ((x[1] & 511u) << 22) + AS_UINT(AS_INT(x[1]) >> 9)
        + ((x[2] & 16777215u) << 7) + AS_UINT(AS_INT(x[2]) >> 24);
    y = y >= 2147483647u ? y - 2147483647u : y;
    y += x[2];
    y = y >= 2147483647u ? y - 2147483647u : y;
    x[2] = x[1];
    x[1] = x[0];
    x[0] = y;
    UINT z = ((x[3] & 65535u) << 15) + 21069u * AS_UINT(AS_INT(x[3]) >> 16);
    z = z >= 2147462579u ? z - 2147462579u : z;
    y = ((x[5] & 65535u) << 15) + 21069u * AS_UINT(AS_INT(x[5]) >> 16);
    y = y >= 2147462579u ? y - 2147462579u : y;
    y += x[5];
    y = y >= 2147462579u ? y - 2147462579u : y;
    y += z;
    y = y >= 2147462579u ? y - 2147462579u : y;
    x[5] = x[4];
    x[4] = x[3];
    x[3] = y;
    const UINT difference = x[0] - x[3];
    return AS_INT(AS_INT(x[0]) <= AS_INT(x[3]) ? difference + 2147483647u : difference);
}

/* On a GPU, an item processes one stream. SAMPLE is the next number of state x. */
OUTLINED_KERNEL void mrg_by_stream(ga_size n, ga_size streams, ga_size each, ARRAY uint *state, ARRAY T *z)
{
    const ga_size stream = get_global_id(0);
    if (stream >= streams)
        return;
    uint x[6];
    for (int c = 0; c < 6; ++c)
        x[c] = state[stream * 6 + c];
    for (ga_size i = stream; i < n; i += streams)
        z[i] = STORE(SAMPLE);
    for (int c = 0; c < 6; ++c)
        state[stream * 6 + c] = x[c];
}

/* On a CPU, an item computes whole rounds of its streams in vectors (SAMPLES of state v), then a partial round. */
OUTLINED_KERNEL void mrg_in_vectors(ga_size n, ga_size streams, ga_size each, ARRAY uint *state, ARRAY T *z)
{
    const ga_size rounds = n / streams, rest = n % streams;
    const ga_size stop = min((get_global_id(0) + 1) * each, streams);
    for (ga_size first = get_global_id(0) * each; first < stop; first += LANES) {
        const uint here = (uint)min((ga_size)LANES, stop - first);
        uint lanes[6][LANES] = {{0}};
        for (uint l = 0; l < here; ++l)
            for (int c = 0; c < 6; ++c)
                lanes[c][l] = state[(first + l) * 6 + c];
        ga_size done = 0;
        if (here == LANES) {
            UINT v[6];
            for (int c = 0; c < 6; ++c)
                v[c] = VLOAD(0, lanes[c]);
            for (; done < rounds; ++done)
                STORE_SAMPLES(SAMPLES, 0, (GLOBAL_MEM STORED *)(z + done * streams + first));
            for (int c = 0; c < 6; ++c)
                VSTORE(v[c], 0, lanes[c]);
        }
        for (uint l = 0; l < here; ++l) {
            uint x[6];
            for (int c = 0; c < 6; ++c)
                x[c] = lanes[c][l];
            const ga_size last = rounds + (first + l < rest);
            for (ga_size k = done; k < last; ++k)
                z[k * streams + first + l] = STORE(SAMPLE);
            for (int c = 0; c < 6; ++c)
                state[(first + l) * 6 + c] = x[c];
        }
    }
}
