/* The kernel that turns a matrix over, see turning.py. */

/* Groups have squares of the matrix, whose rows they read and whose columns they write. Rows of the result that end
   before a multiple of four are filled with zeros. */
__attribute__((reqd_work_group_size(SIDE, ROWS, 1)))
KERNEL void matmul_turned(long16 s, ARRAY T *x, ARRAY W *turned)
{
    __local W square[SIDE][SIDE + 1];
    const ga_ssize rows = s.s0, length = s.s1, row = s.s2, pitch = s.s3;
    const int column = get_local_id(0), line = get_local_id(1);
    const ga_ssize i0 = (ga_ssize)get_group_id(1) * SIDE, l0 = (ga_ssize)get_group_id(0) * SIDE;
    #pragma unroll
    for (int q = 0; q < SIDE; q += ROWS) {
        const ga_ssize i = i0 + line + q, l = l0 + column;
        square[line + q][column] = i < rows && l < length ? x[i * row + l] : 0;
    }
    local_barrier();
    #pragma unroll
    for (int q = 0; q < SIDE; q += ROWS) {
        const ga_ssize l = l0 + line + q, i = i0 + column;
        if (l < length && i < pitch)
            turned[l * pitch + i] = square[column][line + q];
    }
}
