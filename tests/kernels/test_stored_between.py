"""What lies between two calls that become one is stored where several loops would compute it again."""

from tests.kernels.call_programs import Calls

from rushlight._codegen.traffic import traffic, work_of
from rushlight._prims.effects import prim
from rushlight._types.dtype import FLOAT32


def along(v, like, dim):
    return prim.broadcast(v, shape=like.shape, dims=(dim,))


def norm_and_back():
    """A norm's rows through something costly, and sums of that along rows and along columns."""
    program = Calls()
    x, g = program.input((512, 256), FLOAT32), program.input((512, 256), FLOAT32)

    def forward(x, g):
        centred = x - along(prim.sum(x, dims=(1,)) / 256.0, x, 0)
        return g * prim.erf(centred) * prim.exp(centred * centred * -0.5)

    def backward(d, x):
        return (
            d - along(prim.sum(d * prim.log(x * x), dims=(1,)), d, 0),
            prim.sum(d * x, dims=(0,)),
            prim.sum(d, dims=(0,)),
        )

    return program, program.call(backward, program.call(forward, x, g), x)


def test_costly_values_between_loops_are_stored():
    program, results = norm_and_back()
    made = program.check(results)
    (cluster,) = made.linked.clusters
    assert len(cluster.unit.results) == len(results) + 1  # the gradient is written once, and read by the columns
    texts = [step.kernel.text() for step in cluster.compiled.program.steps]
    assert sum(text.count("erf") for text in texts) == 1
    apart = program.check(results, options={"fusion": False})
    assert len(apart.launches) > len(made.launches)


def test_rows_that_are_read_again_lie_in_the_cache():
    program, results = norm_and_back()
    made = program.linked(results)
    step = made.linked.clusters[0].compiled.program.steps[0]
    assert traffic(step.kernel, 1 << 14)[0] < traffic(step.kernel)[0]
    assert work_of(step.kernel, step.target.policy) > 512 * 256 * 20
