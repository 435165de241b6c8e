from _typeshed import Incomplete
from theano.gof.op import Op

class BaseAbstractConv(Op):
    convdim: int
    border_mode: Incomplete
    subsample: tuple[int, ...]
    filter_flip: bool
    imshp: Incomplete
    kshp: Incomplete
    filter_dilation: tuple[int, ...]
    num_groups: int
    unshared: bool
    def __init__(
        self,
        convdim: int,
        imshp: Incomplete = ...,
        kshp: Incomplete = ...,
        border_mode: Incomplete = ...,
        subsample: tuple[int, ...] | None = ...,
        filter_flip: bool = ...,
        filter_dilation: tuple[int, ...] | None = ...,
        num_groups: int = ...,
        unshared: bool = ...,
    ) -> None: ...

class AbstractConv(BaseAbstractConv):
    def __init__(
        self,
        convdim: int,
        imshp: Incomplete = ...,
        kshp: Incomplete = ...,
        border_mode: Incomplete = ...,
        subsample: tuple[int, ...] | None = ...,
        filter_flip: bool = ...,
        filter_dilation: tuple[int, ...] | None = ...,
        num_groups: int = ...,
        unshared: bool = ...,
    ) -> None: ...

class AbstractConv2d(AbstractConv):
    def __init__(
        self,
        imshp: Incomplete = ...,
        kshp: Incomplete = ...,
        border_mode: Incomplete = ...,
        subsample: tuple[int, ...] = ...,
        filter_flip: bool = ...,
        filter_dilation: tuple[int, ...] = ...,
        num_groups: int = ...,
        unshared: bool = ...,
    ) -> None: ...

class AbstractConv_gradInputs(BaseAbstractConv):
    def __init__(
        self,
        convdim: int,
        imshp: Incomplete = ...,
        kshp: Incomplete = ...,
        border_mode: Incomplete = ...,
        subsample: tuple[int, ...] | None = ...,
        filter_flip: bool = ...,
        filter_dilation: tuple[int, ...] | None = ...,
        num_groups: int = ...,
        unshared: bool = ...,
    ) -> None: ...

class AbstractConv2d_gradInputs(AbstractConv_gradInputs):
    def __init__(
        self,
        imshp: Incomplete = ...,
        kshp: Incomplete = ...,
        border_mode: Incomplete = ...,
        subsample: tuple[int, ...] = ...,
        filter_flip: bool = ...,
        filter_dilation: tuple[int, ...] = ...,
        num_groups: int = ...,
        unshared: bool = ...,
    ) -> None: ...

class AbstractConv_gradWeights(BaseAbstractConv):
    def __init__(
        self,
        convdim: int,
        imshp: Incomplete = ...,
        kshp: Incomplete = ...,
        border_mode: Incomplete = ...,
        subsample: tuple[int, ...] | None = ...,
        filter_flip: bool = ...,
        filter_dilation: tuple[int, ...] | None = ...,
        num_groups: int = ...,
        unshared: bool = ...,
    ) -> None: ...

class AbstractConv2d_gradWeights(AbstractConv_gradWeights):
    def __init__(
        self,
        imshp: Incomplete = ...,
        kshp: Incomplete = ...,
        border_mode: Incomplete = ...,
        subsample: tuple[int, ...] = ...,
        filter_flip: bool = ...,
        filter_dilation: tuple[int, ...] = ...,
        num_groups: int = ...,
        unshared: bool = ...,
    ) -> None: ...

class AbstractConv3d(AbstractConv):
    def __init__(
        self,
        imshp: Incomplete = ...,
        kshp: Incomplete = ...,
        border_mode: Incomplete = ...,
        subsample: tuple[int, ...] = ...,
        filter_flip: bool = ...,
        filter_dilation: tuple[int, ...] = ...,
        num_groups: int = ...,
    ) -> None: ...

class AbstractConv3d_gradInputs(AbstractConv_gradInputs):
    def __init__(
        self,
        imshp: Incomplete = ...,
        kshp: Incomplete = ...,
        border_mode: Incomplete = ...,
        subsample: tuple[int, ...] = ...,
        filter_flip: bool = ...,
        filter_dilation: tuple[int, ...] = ...,
        num_groups: int = ...,
    ) -> None: ...

class AbstractConv3d_gradWeights(AbstractConv_gradWeights):
    def __init__(
        self,
        imshp: Incomplete = ...,
        kshp: Incomplete = ...,
        border_mode: Incomplete = ...,
        subsample: tuple[int, ...] = ...,
        filter_flip: bool = ...,
        filter_dilation: tuple[int, ...] = ...,
        num_groups: int = ...,
    ) -> None: ...

def __getattr__(name: str) -> Incomplete: ...
