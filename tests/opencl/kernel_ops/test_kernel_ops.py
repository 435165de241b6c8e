"""Compiled functions can contain ops with handwritten kernels, which are in Python code or in files."""

from __future__ import annotations

import re

import numpy as np
import pytest
import theano
import theano.tensor as tt

from optdb.opencl import OpenCLArrayType, as_opencl_variable, contexts, get_context
from optdb.opencl.kernel_ops import (
    ARRAY,
    SIZE,
    BuildError,
    Kernel,
    KernelFileError,
    OpenCLKernelBase,
    OpenCLKernelFileBase,
    output_array,
    output_zeros,
)
from optdb.opencl.kernel_ops.files import definitions, parse

MODE = theano.Mode("py", "fast_compile")
HEAD = "#section kernels\n"
EMPTY = "KERNEL void k() {}\n"


@pytest.fixture(scope="module", autouse=True)
def context():
    contexts.register("kernels_dev", "opencl")
    yield get_context("kernels_dev")
    contexts.forget("kernels_dev")


class Elementwise:
    """An op that computes a device array with the shape of its only input."""

    __props__ = ("out_dtype",)

    def make_node(self, x):
        x = as_opencl_variable(x, "kernels_dev")
        return theano.Apply(self, [x], [x.type.clone(dtype=self.out_dtype)()])

    def run(self, node, inputs, outputs, kernels, context):
        (x,) = inputs
        y = output_array(outputs[0], context, x.shape, self.out_dtype)
        kernels["go"].scall(x.size, x, y, x.size)


class InPython(Elementwise, OpenCLKernelBase):
    def __init__(self, code, out_dtype="float32"):
        self.code, self.out_dtype = code, out_dtype

    def gpu_kernels(self, node, name):
        return [Kernel(self.code, "go", [ARRAY, ARRAY, SIZE], Kernel.get_flags(self.out_dtype))]


class InFile(Elementwise, OpenCLKernelFileBase):
    def __init__(self, path, out_dtype):
        super().__init__(path)
        self.out_dtype = out_dtype

    def get_op_params(self):
        return [("INCREMENT", 3)]


SQUARE = """
KERNEL void go(GLOBAL_MEM float *x, ga_size x_off, GLOBAL_MEM float *y, ga_size y_off, ga_size n) {
    ga_size i = GID_0 * LDIM_0 + LID_0;
    if (i < n) y[i] = x[i] * x[i];
}"""

ADD = """#section kernels
ga_float increased(ga_float x) { return x + INCREMENT; }

#kernel go : *, *, size : GA_USE_SMALL
KERNEL void go(GLOBAL_MEM DTYPE_INPUT_0 *x, ga_size x_off, GLOBAL_MEM DTYPE_OUTPUT_0 *y, ga_size y_off, ga_size n) {
    ga_size i = GID_0 * LDIM_0 + LID_0;
    if (i < n) {
        WORK_INPUT_0 z = LOAD_INPUT_0(x[i]);
        y[i] = WRITE_OUTPUT_0(increased(z));
    }
}
"""


def test_a_kernel_in_python():
    x = tt.fmatrix()
    f = theano.function([x], InPython(SQUARE)(x), mode=MODE)
    for shape in ((3, 4), (0, 4), (1, 100)):
        value = np.random.default_rng(0).normal(size=shape).astype("float32")
        np.testing.assert_array_equal(f(value).get(), value**2)


@pytest.mark.parametrize("out_dtype", ["float16", "float32"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
def test_one_file_for_many_dtypes(tmp_path, dtype, out_dtype):
    path = tmp_path / "add.cl"
    path.write_text(ADD)
    x = tt.TensorType(dtype, [False])()
    f = theano.function([x], InFile(path, out_dtype)(x), mode=MODE)
    np.testing.assert_array_equal(f(np.arange(5, dtype=dtype)).get(), np.arange(3, 8).astype(out_dtype))


def test_kernels_are_compiled_with_the_function():
    x = tt.fvector()
    with pytest.raises(BuildError, match=r"InPython \(kernels: go\) does not build"):
        theano.function([x], InPython(SQUARE.replace("x[i];", "x[j];"))(x), mode=MODE)


def test_kernels_are_asked_for_once_per_node(monkeypatch):
    asked = []
    kernels = InPython.gpu_kernels
    monkeypatch.setattr(InPython, "gpu_kernels", lambda *args: asked.append(args) or kernels(*args))
    x = tt.fvector()
    f = theano.function([x], InPython(SQUARE)(x), mode=MODE)
    for _ in range(3):
        f(np.ones(3, "float32"))
    assert len(asked) == 1


def test_debug_mode_finds_nothing():
    x = OpenCLArrayType("float32", [False], context_name="kernels_dev")()
    f = theano.function([x], InPython(SQUARE)(x), mode=theano.compile.DebugMode(optimizer="fast_compile"))
    np.testing.assert_array_equal(f(np.arange(3, dtype="float32")).get(), [0, 1, 4])


def test_memory_is_used_again_where_the_caller_allows_it():
    x = tt.fvector()
    keeping = theano.Mode(theano.gof.PerformLinker(allow_gc=False), "fast_compile")
    f = theano.function([x], theano.Out(InPython(SQUARE)(x), borrow=True), mode=keeping)
    first = f(np.ones(3, "float32")).base_data
    assert f(np.ones(3, "float32")).base_data is first
    assert f(np.ones(4, "float32")).base_data is not first


def test_what_subclasses_have_to_define():
    class Nothing(OpenCLKernelBase):
        pass

    node = theano.Apply(Nothing(), [], [tt.fscalar()])
    with pytest.raises(NotImplementedError, match="Nothing must define gpu_kernels"):
        node.op.gpu_kernels(node, "")
    with pytest.raises(NotImplementedError, match="Nothing must define run"):
        node.op.run(node, [], [], {}, None)
    with pytest.raises(TypeError, match="neither inputs nor outputs on a device"):
        node.op.get_context(node)


# Kernel files


def test_declarations_are_read():
    first, second = parse(
        HEAD + "#kernel a : *, size, float32, i, local : GA_USE_DOUBLE|GA_USE_SMALL\n\n#kernel b : :\n"
    )
    assert (first.name, list(map(str, first.params))) == ("a", ["*", "size", "float32", "int32", "local"])
    assert first.flags == ("GA_USE_DOUBLE", "GA_USE_SMALL")
    assert (second.name, second.params, second.flags) == ("b", (), ())
    assert first.code == second.code


def test_lines_of_code_stay_where_they_are():
    (kernel,) = parse(HEAD + "// one\n#kernel k : size :\n// three\n")
    assert kernel.code.split("\n") == ["", "// one", "", "// three"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "declares no kernel"),
        (HEAD + EMPTY, "declares no kernel"),
        (EMPTY, "f.cl:1: the file must begin with '#section kernels'"),
        ("\n#section kernel\n", "f.cl:2: unknown section 'kernel'; the only one is kernels"),
        (HEAD + "#kernel\n", "f.cl:2: a kernel is declared as"),
        (HEAD + "#kernel k\n", "f.cl:2: a kernel is declared as"),
        (HEAD + "#kernel : size :\n", "f.cl:2: a kernel is declared as"),
        (HEAD + "#kernel k : a : b : c\n", "f.cl:2: a kernel is declared as"),
        (HEAD + "#kernel k : size, pointer :\n", "f.cl:2: 'pointer' is not a parameter type of a kernel: use"),
        (HEAD + "#kernel k : size, :\n", "f.cl:2: '' is not a parameter type"),
        (HEAD + "#kernel k : size : GA_USE_MAGIC\n", "f.cl:2: kernel k has an unknown flag 'GA_USE_MAGIC'"),
        (HEAD + "#kernel 1k : size :\n", "f.cl:2: '1k' cannot be the name of a kernel"),
    ],
)
def test_files_that_cannot_be_understood(text, says):
    with pytest.raises(KernelFileError, match=says):
        parse(text, "f.cl")


THEANOS_FILE = """#section kernels

#kernel eye : *, size, size :
KERNEL void eye(GLOBAL_MEM float *a, /* rows, */ ga_size n, ga_size m) { // one pointer, (no offset)
    for (ga_size i = LID_0; i < n && i < m; i += LDIM_0) a[i * m + i] = 1;
}
"""


@pytest.mark.parametrize(
    ("text", "params"),
    [
        (THEANOS_FILE, "buffer, size, size"),
        (THEANOS_FILE.replace("float *a,", "float *a, ga_size a_off,"), r"\*, size, size"),
        (HEAD + "#kernel k : *, * :\n__kernel void k(__global int *a, __global int *b) {}\n", "buffer, buffer"),
        (HEAD + "#kernel k : *, size :\nKERNEL void other(GLOBAL_MEM int *a, ga_size n) {}\n", r"\*, size"),
    ],
)
def test_an_array_is_what_the_code_says(text, params):
    [kernel] = parse(text, "f.cl")
    assert re.search(f": {params}: ", repr(kernel))


def test_a_file_for_theanos_gpu_backend_runs(tmp_path):
    (tmp_path / "eye.cl").write_text(THEANOS_FILE)

    class Eye(OpenCLKernelFileBase):
        __props__ = ()

        def __init__(self):
            super().__init__(tmp_path / "eye.cl")

        def make_node(self, x):
            return theano.Apply(self, [as_opencl_variable(x, "kernels_dev")], [x.type()])

        def infer_shape(self, fgraph, node, shapes):
            assert node in fgraph.apply_nodes or fgraph is None
            return shapes

        def run(self, node, inputs, outputs, kernels, context):
            z = output_zeros(outputs[0], context, inputs[0].shape, "float32")
            kernels["eye"].scall(1, z, *z.shape)

    class OnDevice(Eye):
        def make_node(self, x):
            node = super().make_node(x)
            return theano.Apply(self, node.inputs, [node.inputs[0].type()])

    x = tt.fmatrix()
    f = theano.function([x], OnDevice()(x), mode=MODE)
    np.testing.assert_array_equal(f(np.zeros((3, 4), "float32")), np.eye(3, 4))
    g = theano.function([x], OnDevice()(x).shape, mode=theano.Mode("py", "fast_run"))
    assert g(np.zeros((3, 4), "float32")).tolist() == [3, 4]
    assert not any(isinstance(node.op, Eye) for node in g.maker.fgraph.apply_nodes)


@pytest.mark.parametrize("section", ["support_code", "support_code_struct", "init_code", "code", "code_cleanup"])
def test_c_sections_are_refused_with_what_to_write(section):
    with pytest.raises(KernelFileError, match=rf"f.cl:2: the section '{section}' is C code .*def run\(self, node"):
        parse(f"\n#section {section}\nint x;\n", "f.cl")


def test_kernels_as_theanos_gpu_backend_describes_them():
    kernel = Kernel(code=EMPTY, name="k", params=[], flags="GA_USE_SMALL|GA_USE_DOUBLE", objvar="k_eye_node", sname="s")
    assert kernel.flags == ("GA_USE_SMALL", "GA_USE_DOUBLE")
    with pytest.raises(TypeError, match=r"write Kernel\(code=..., name=..., params=..., flags=...\)"):
        Kernel(EMPTY, [], "k", ())


def test_a_file_that_is_not_there():
    with pytest.raises(FileNotFoundError, match=r"InFile has its kernels in .*tests/opencl/kernel_ops/no.cl"):
        InFile("no.cl", "float32")


def test_what_the_code_is_told_of_the_variables():
    x = OpenCLArrayType("float16", [False], context_name="kernels_dev")()
    node = theano.Apply(InPython(SQUARE), [x, tt.lscalar()], [x.type.clone(dtype="int8")()])
    told = dict(definitions(node))
    assert told["DTYPE_INPUT_0"] == "ga_half"
    assert told["WORK_INPUT_0"] == "ga_float"
    assert told["LOAD_INPUT_0"] == "ga_half2float"
    assert told["DTYPE_INPUT_1"] == "ga_long"
    assert told["DTYPE_OUTPUT_0"] == "ga_byte"
    assert told["WRITE_OUTPUT_0"] == ""
