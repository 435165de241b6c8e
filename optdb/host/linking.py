"""How Theano runs compiled functions: what stands in for its virtual machine has to know this."""

from __future__ import annotations

from theano.compile.function_module import infer_reuse_pattern
from theano.compile.ops import DeepCopyOp, ViewOp, deep_copy_op
from theano.gof.link import raise_with_op
from theano.gof.vm import VM, VM_Linker

__all__ = ["VM", "DeepCopyOp", "VM_Linker", "ViewOp", "deep_copy_op", "infer_reuse_pattern", "raise_with_op"]
