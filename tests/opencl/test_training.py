"""If the flag optdb.device is set, an unmodified script trains on the device, with the same losses as on the host."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.processes import output

SCRIPT = """
    import json
    import optdb
    import numpy as np
    import theano
    import theano.tensor as tt

    rng = np.random.RandomState(3)

    def weights(*shape):
        return theano.shared(rng.uniform(-0.5, 0.5, shape).astype("float32"))

    x, y = tt.fmatrix("x"), tt.ivector("y")
    w1, b1, w2, b2 = weights(6, 16), weights(16), weights(16, 3), weights(3)
    hidden = tt.tanh(tt.dot(x, w1) + b1)
    loss = tt.nnet.categorical_crossentropy(tt.nnet.softmax(tt.dot(hidden, w2) + b2), y).mean()
    parameters = [w1, b1, w2, b2]
    updates = [(p, p - np.float32(0.1) * g) for p, g in zip(parameters, tt.grad(loss, parameters))]
    step = theano.function([x, y], loss, updates=updates)

    data = rng.normal(size=(20, 6)).astype("float32")
    classes = rng.randint(0, 3, 20).astype("int32")
    losses = [float(step(data, classes)) for _ in range(6)]
    explanation = optdb.explain(step)
    print(json.dumps([losses, dict(explanation.places), [float(np.abs(p.get_value()).sum()) for p in parameters]]))
"""


@pytest.fixture(scope="module")
def on_host():
    return json.loads(output(SCRIPT, flags="floatX=float32"))


@pytest.mark.thorough_cases("True")
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["True", "False"])
def test_a_net_trains_on_the_device(on_host, engine):
    losses, places, parameters = json.loads(
        output(SCRIPT, flags=f"floatX=float32,optdb.device=opencl,optdb.topo={engine}")
    )
    np.testing.assert_allclose(losses, on_host[0], rtol=1e-5)
    np.testing.assert_allclose(parameters, on_host[2], rtol=1e-5)
    assert losses[-1] < losses[0]
    on_device = sum(count for place, count in places.items() if place != "host")
    assert on_device > places.get("host", 0)
    assert set(on_host[1]) == {"host"}
