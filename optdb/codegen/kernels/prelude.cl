#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#define KERNEL __kernel
#define OUTLINED_KERNEL __kernel
#define GLOBAL_MEM __global
#define LOCAL_MEM __local
#define LOCAL_MEM_ARG __local
#define LID_0 get_local_id(0)
#define LID_1 get_local_id(1)
#define LID_2 get_local_id(2)
#define LDIM_0 get_local_size(0)
#define LDIM_1 get_local_size(1)
#define LDIM_2 get_local_size(2)
#define GID_0 get_group_id(0)
#define GID_1 get_group_id(1)
#define GID_2 get_group_id(2)
#define GDIM_0 get_num_groups(0)
#define GDIM_1 get_num_groups(1)
#define GDIM_2 get_num_groups(2)
/* Assembly that does not wait for other items, and accesses only its operands. */
#define PTX asm volatile
/* Loops over `i`, from 0 to `count` or from `begin` to `end`, that the compiler unrolls. */
#define UNROLLED(i, count) _Pragma("unroll") for (int i = 0; i < count; ++i)
#define UNROLLED_RANGE(i, begin, end, step) _Pragma("unroll") for (int i = begin; i < end; i += step)
#define local_barrier() barrier(CLK_LOCAL_MEM_FENCE)
#define ga_bool uchar
#define ga_byte char
#define ga_ubyte uchar
#define ga_short short
#define ga_ushort ushort
#define ga_int int
#define ga_uint uint
#define ga_long long
#define ga_ulong ulong
#define ga_float float
#define ga_double double
#define ga_cfloat float2
#define ga_cdouble double2
#define ga_size ulong
#define ga_ssize long
/* A struct, so that a kernel that calculates with the bits of a half does not compile. */
typedef struct { ushort bits; } ga_half;
static inline float ga_half2float(ga_half h) { return vload_half(0, (const half *)&h.bits); }
static inline ga_half ga_float2half(float f) { ga_half h; vstore_half_rte(f, 0, (half *)&h.bits); return h; }
