"""Special functions of vectors are accurate to a few units in the last place, and lanes do not affect each other."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

from tests.codegen.scalars.device_results import device_results, of_scalar, with_poles

WIDTH = 16

#: Values computed with 60 digits, at the ends of the ranges of the approximations, near zeros, and at the smallest and
#: the largest numbers. The number after the name is the tolerance relative to the value.
KNOWN = [
    (
        "Gamma",
        1.2e-15,
        [
            *((1e-300, 9.999999999999999e299), (1e-17, 1e17), (0.125, 7.533941598797612)),
            *((0.5, 1.772453850905516), (1.4616321449683622, 0.8856031944108887), (2.125, 1.0594605373309143)),
            *((4.125, 7.035480130713102), (5.125, 29.021355539191546), (5.126, 29.065894405360016)),
            *((23.881419872830264, 1.7784402234148607e22), (171.62, 1.7576826789978127e308)),
            *((-1e-17, -1e17), (-0.5, -3.544907701811032), (-2.5, -0.9453087204829419)),
            *((-10.567559165859338, -2.2962788347935876e-07), (-30.28030475815973, -5.885002441326114e-33)),
            *((-170.5, -3.3127395215386074e-308), (-173.0000000047595, 5.689656558191603e-306)),
            *((-176.5, -1.196e-321),),
        ],
    ),
    (
        "GammaLn",
        8e-16,
        [
            *((5e-324, 744.4400719213812), (1e-310, 713.8013788281542), (0.125, 2.0194183575537963)),
            *((0.1250001, 2.019417518704857), (0.7, 0.26086724653166654), (1, 0), (2, 0)),
            *((0.9999999999, 5.7721571274281786e-11), (1.0000000000000002, -1.2816762426960008e-16)),
            *((1.125, -0.06002318412603958), (1.25, -0.09827183642181316), (1.4616321449683622, -0.12148629053584961)),
            *((1.9999999999999998, -9.387698065543117e-17), (2.00000001, 4.227843357536779e-09)),
            *((2.125, 0.057759851530343874), (3.125, 0.811531653906724), (4.2, 2.04855563696059)),
            *((5.125, 3.368031956881733), (5.126, 3.369565473270937), (7.46, 7.456608247313439)),
            *((171.5, 709.1431630309282), (1e9, 19723265827.503716), (1e300, 6.897755278982137e302)),
            *((2.55e305, 1.7906725941420033e308), (2.57e305, np.inf)),
        ],
    ),
    (
        "Psi",
        1.2e-15,
        [
            *((1e-300, -1e300), (0.125, -8.388492663295855), (1, -0.5772156649015329), (1.117, -0.3996541936508278)),
            *((1.4616321449683622, -9.241265521729427e-17), (1.4616321449683625, 1.2245374622004068e-16)),
            *((1.46, -0.0015805619870834522), (2.125, 0.500396225593034), (3, 0.9227843350984671)),
            *((4.125, 1.2909844608871517), (5.125, 1.5334087033113941), (5.2, 1.5494341293818377)),
            *((1e5, 11.512920464961896), (1e300, 690.7755278982137), (5e-324, -np.inf)),
        ],
    ),
    (
        "Erf",
        8e-16,
        [
            *((1e-300, 1.1283791670955126e-300), (0.3, 0.3286267594591274), (0.9999, 0.8426592780487595)),
            *((1.0001, 0.8427422995485203), (3, 0.9999779095030014), (-0.8, -0.7421009647076605)),
            *((-1.5, -0.9661051464753108), (6.5, 1), (5e-324, 5e-324)),
        ],
    ),
    (
        "Erfc",
        1e-15,
        [
            *((1e-300, 1), (0.3, 0.6713732405408726), (0.5, 0.4795001221869535), (0.5004, 0.4791486794673546)),
            *((1.0946, 0.12162273822168594), (5.18565441, 2.2401303337729294e-13), (26.5, 2.2109076642637343e-307)),
            *((10.25878789, 1.0763492480439903e-47), (-0.3, 1.3286267594591274), (-3, 1.9999779095030015), (28, 0)),
        ],
    ),
    (
        "Erfcx",
        1e-15,
        [
            *((5e-324, 1), (1e-12, 0.9999999999988716), (0.001, 0.9988726200811514), (0.5, 0.6156903441929259)),
            *((3, 0.17900115118138996), (3.75, 0.14558972127503855), (26.5, 0.021275046685371106)),
            *((30, 0.01879588886141675), (1e9, 5.641895835477563e-10), (1e300, 5.641895835477562e-301)),
            *((1.7e308, 3.31876225616327e-309), (-0.5, 1.952360489182557), (-3, 16205.988853999586)),
        ],
    ),
    (
        "Erfinv",
        8e-16,
        [
            *((1e-300, 8.86226925452758e-301), (1e-8, 8.86226925452758e-09), (0.25, 0.2253120550121781)),
            *((0.5, 0.4769362762044699), (-0.99, -1.8213863677184494), (0.9966, 2.071150939906553)),
            *((0.99664, 2.0737506239249206), (0.999999999, 4.320005388105362)),
            *((0.9999999999999999, 5.8635847487551676),),
        ],
    ),
    (
        "Erfcinv",
        8e-16,
        [
            *((5e-324, 27.21329321081295), (1e-310, 26.644806559364763), (1e-100, 15.065574702592645)),
            *((1e-16, 5.8723700904539635), (0.00336, 2.073750623924923), (0.0034, 2.07115093990655)),
            *((0.5, 0.4769362762044699), (0.9999999999, 8.862269987795026e-11), (1.5, -0.4769362762044699)),
            *((1.9999, -2.75106390571208),),
        ],
    ),
]

#: Values of functions at negative numbers, where digits are lost near zeros.
NEGATIVE = [
    (
        "GammaLn",
        [
            *((-5e-324, 744.4400719213812), (-1e-310, 713.8013788281542), (-1e-9, 20.723265837523627)),
            *((-0.5, 1.2655121234846454), (-1.5, 0.860047015376481), (-2.4570247382208006, 5.619192358950097e-17)),
            *((-3.9999, 6.032437168735688), (-13.999999999994841, 0.7991462887677476), (-19.5, -39.6867710886814)),
            *((-20.5, -42.70719597482576), (-171.25, -711.509750623723), (-1e9 - 0.5, -19723265857.443886)),
        ],
    ),
    (
        "Psi",
        [
            *((-0.5, 0.03648997397857652), (-1.2, 4.868324766627196), (-7.5, 2.08009081757942)),
            *((-30.25, 6.567526705172748),),
        ],
    ),
]

SCIPY = {
    "Gamma": lambda x: with_poles(scipy.special.gamma(x), x),
    "GammaLn": scipy.special.gammaln,
    "Psi": scipy.special.psi,
    "Erf": scipy.special.erf,
    "Erfc": scipy.special.erfc,
    "Erfcx": scipy.special.erfcx,
    "Erfinv": scipy.special.erfinv,
    "Erfcinv": scipy.special.erfcinv,
}


def vectors(names, *arguments):
    """Return the results of functions of arrays, which are repeated up to a multiple of the vector width."""
    longest = max(map(len, arguments[0])) // WIDTH * WIDTH + WIDTH
    padded = [[np.resize(x, longest) for x in arrays] for arrays in zip(*arguments, strict=True)]
    results = device_results([(of_scalar(name, x), x) for name, x in zip(names, padded, strict=True)], WIDTH)
    return [result[: len(x)] for result, x in zip(results, arguments[0], strict=True)]


def test_values_are_accurate_to_a_few_units_in_the_last_place():
    points = [(name, *np.array(pairs, float).T) for name, _, pairs in KNOWN] + [
        (name, *np.array(pairs, float).T) for name, pairs in NEGATIVE
    ]
    results = vectors([name for name, *_ in points], [x for _, x, _ in points])
    for (name, rtol, _), (_, _, known), got in zip(KNOWN, points, results):
        np.testing.assert_allclose(got, known, rtol=rtol, atol=0, err_msg=name)
    for (name, _, known), got in zip(points[len(KNOWN) :], results[len(KNOWN) :], strict=True):
        np.testing.assert_allclose(got, known, rtol=1e-15, atol=1e-15, err_msg=name)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_poles_limits_and_numbers_of_all_magnitudes(dtype):
    rng = np.random.default_rng(0)
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 2, -2, -171, 1.5, -1.5, -1e20, 1e30, -27, np.finfo(dtype).max]
    x = np.concatenate([special, 10 ** rng.uniform(-30, 30, 200), rng.uniform(-9, 9, 400), rng.uniform(-1, 1, 200)])
    x = x.astype(dtype)
    rtol, atol = (1e-13, 1e-14) if dtype == "float64" else (1e-5, 3e-6)
    for name, got in zip(SCIPY, vectors(list(SCIPY), [x] * len(SCIPY)), strict=True):
        with np.errstate(all="ignore"):
            known = SCIPY[name](x.astype("float64")).astype(dtype)
        np.testing.assert_allclose(got, known, rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_lanes_do_not_depend_on_their_neighbours(dtype):
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(-1, 1, 200), rng.uniform(-30, 30, 200), [0, 1, 2, 6, np.inf, np.nan, -np.inf]])
    x = np.resize(x, 512).astype(dtype)
    names = list(SCIPY) * 2
    order = rng.permutation(len(x))
    results = vectors(names, [x] * len(SCIPY) + [x[order]] * len(SCIPY))
    for name, straight, mixed in zip(SCIPY, results, results[len(SCIPY) :]):
        np.testing.assert_array_equal(straight[order], mixed, err_msg=name)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_powers_have_c99s_poles_limits_and_signs(dtype):
    info = np.finfo(dtype)
    numbers = [0, 1, 2, 3, 0.5, 1.5, np.inf, info.smallest_subnormal, info.tiny, info.max, 1 / info.eps - 1, 1e30, 0.1]
    numbers += [10, 38, 308, 1024, 1074, 1 - info.epsneg, 1 + info.eps, 2 / info.eps, 1.4142135, 0.70710677]
    ends = np.array([*numbers, *[-number for number in numbers], np.nan], dtype)
    x, y = (values.ravel() for values in np.meshgrid(ends, ends))
    (got,) = vectors(["Pow"], [x], [y])
    with np.errstate(all="ignore"):
        known = np.power(x.astype("longdouble"), y.astype("longdouble")).astype(dtype)
    np.testing.assert_allclose(got, known, rtol=info.eps, atol=info.smallest_subnormal)
    np.testing.assert_array_equal(np.signbit(got) | np.isnan(known), np.signbit(known) | np.isnan(known))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_powers_are_accurate_to_one_unit_in_the_last_place(dtype):
    rng = np.random.default_rng(2)
    large = 300 if dtype == "float64" else 35
    near_1, exponents = 1 + 10 ** rng.uniform(-7, -1, 2000), 10 ** rng.uniform(0, 4, 2000)
    x = np.concatenate([10 ** rng.uniform(-large, large, 2000), rng.uniform(0.6, 1.6, 4000), near_1]).astype(dtype)
    y = np.concatenate([rng.uniform(-1, 1, 2000), rng.normal(size=2000), rng.uniform(-99, 99, 2000), exponents])
    y = y.astype(dtype)
    (got,) = vectors(["Pow"], [x], [y])
    with np.errstate(over="ignore"):
        known = np.power(x.astype("longdouble"), y.astype("longdouble"))
        finite = known < np.finfo(dtype).max
    error = abs(got[finite] - known[finite]) / np.spacing(known[finite].astype(dtype))
    assert error.max() < 1.4 and error.mean() < 0.26
