"""A random data set like SUSY: the momenta of two leptons, missing energy, and ten quantities derived from them.

The eight measured quantities have one distribution; the derived ones are smooth functions of them with 15 % noise. The
label is drawn with P(+1 | x) = sigmoid(SCALE (g(x) - OFFSET)), where g is the sum of a linear part, a bump and
products, which no plane separates. The Bayes error is 19.9 %, that of a linear SVM 28 %, that of an SVM with RBF kernel
21 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from streamsvm.rows import Dense, Float32
from streamsvm.store.generators.simple import CLASSES, cut_batches, signs
from streamsvm.types import Batch

SCALE, OFFSET = 1.7, 0.15
STANDARD = {
    "lepton_1_pt": (0.7244741, 0.352433),
    "lepton_1_eta": (-1.043886e-4, 1.00148),
    "lepton_1_phi": (-4.087062e-3, 1.819579),
    "lepton_2_pt": (0.4950452, 0.298625),
    "lepton_2_eta": (1.825623e-3, 1.000934),
    "lepton_2_phi": (1.656153e-3, 1.817346),
    "missing_energy": (0.7400402, 0.377784),
    "missing_energy_phi": (-3.423181e-3, 1.8179),
    "met_rel": (0.3954773, 0.214522),
    "axial_met": (1.491153e-4, 1.123327),
    "m_r": (1.398876, 0.487401),
    "m_ll": (0.8998642, 0.516691),
    "r": (0.4273645, 0.278682),
    "m_t2": (0.771292, 0.425488),
    "s_r": (1.116374, 0.496415),
    "cos_delta_phi": (1.280222e-3, 0.707866),
    "delta_eta": (1.128614, 0.853268),
    "cos_theta": (7.394134e-4, 0.721715),
}
"""The mean and standard deviation of each column, over 200,000 rows that were drawn once. They are constants, so that a
row does not depend on other rows."""
NAMES = tuple(STANDARD)
SKEWED = ("lepton_1_pt", "lepton_2_pt", "missing_energy", "m_r", "m_ll", "m_t2", "s_r")
"""The columns that are positive with a long tail; x is replaced by log(1 + x)."""


class Measured(NamedTuple):
    """The quantities that a detector measures of n events, each float32 (n,)."""

    pt1: Float32
    """The transverse momentum of the first lepton."""
    eta1: Float32
    """The pseudorapidity of the first lepton."""
    phi1: Float32
    """The angle of the first lepton in the transverse plane, in radians."""
    pt2: Float32
    """The transverse momentum of the second lepton."""
    eta2: Float32
    """The pseudorapidity of the second lepton."""
    phi2: Float32
    """The angle of the second lepton."""
    met: Float32
    """The magnitude of the missing transverse momentum."""
    phi_met: Float32
    """The angle of the missing momentum."""


def _draw_measured(rng: np.random.Generator, n: int) -> Measured:
    pt1 = np.float32(0.6) * rng.standard_gamma(2.0, n, np.float32)
    eta1, eta2 = rng.standard_normal((2, n), np.float32)
    phi1, phi2, phi_met = np.float32(np.pi) * (2 * rng.random((3, n), np.float32) - 1)
    met = np.float32(0.7) * rng.standard_gamma(1.8, n, np.float32)
    return Measured(pt1, eta1, phi1, pt1 * _beta_3_2(rng, n), eta2, phi2, met, phi_met)


def _beta_3_2(rng: np.random.Generator, n: int) -> Float32:
    """Draw Beta(3, 2), the distribution of the third smallest of four uniform numbers, in float32."""
    a, b, c, d = rng.random((4, n), np.float32)
    return np.maximum(np.minimum(np.maximum(a, b), np.maximum(c, d)), np.maximum(np.minimum(a, b), np.minimum(c, d)))


def _derive(q: Measured, smear: Float32) -> tuple[Float32, ...]:
    """Return the ten derived columns, float32 (n,) each; ``smear``: relative errors (4, n) to add."""
    ratio = q.met / (q.pt1 + q.pt2 + q.met + np.float32(0.1))
    axial = q.met * np.cos(q.phi_met - q.phi1) * (1 + smear[1])
    p1, p2 = (pt * np.cosh(np.clip(eta, -3, 3)) for pt, eta in ((q.pt1, q.eta1), (q.pt2, q.eta2)))
    m_r = np.sqrt(np.square(p1 + p2) + np.square(q.met))
    cos_phi, delta_eta = np.cos(q.phi1 - q.phi2), np.abs(q.eta1 - q.eta2)
    pair = np.maximum(np.cosh(np.minimum(delta_eta, 4)) - cos_phi, 0)
    m_ll = np.sqrt(2 * q.pt1 * q.pt2 * pair) * (1 + smear[0])
    m_t2 = np.sqrt(2 * q.pt1 * q.met * (1 - np.cos(q.phi1 - q.phi_met))) * (1 + smear[2])
    cos_theta = np.tanh(q.eta1 - q.eta2) * (1 + np.float32(0.3) * smear[3])
    s_r = np.sqrt(np.maximum(m_r * m_ll, 0))
    return ratio, axial, m_r, m_ll, m_t2 / (m_r + np.float32(0.1)), m_t2, s_r, cos_phi, delta_eta, cos_theta


def _score(z: dict[str, Float32]) -> Float32:
    """Return g(x) of the standardized columns."""
    pt, met, m_ll, m_t2 = (z[name] for name in ("lepton_1_pt", "missing_energy", "m_ll", "m_t2"))
    cos_phi, delta_eta = z["cos_delta_phi"], z["delta_eta"]
    linear = 0.8 * met + 0.6 * m_t2 - 0.5 * m_ll - 0.4 * cos_phi + 0.3 * pt
    bump = 2.2 * np.exp(-0.5 * np.square((m_ll - 0.3) / 0.45)) - 0.8
    products = 0.7 * z["axial_met"] * cos_phi - 0.6 * pt * z["met_rel"] + 0.5 * np.square(z["cos_theta"])
    return 0.75 * linear + bump + 0.6 * (products - 0.3 * delta_eta * m_t2)


@dataclass(frozen=True, slots=True)
class Susy:
    """Rows like those of the SUSY data set: 18 columns, 57 % positive. The module describes the distribution."""

    rows: int
    """The number of rows to make."""
    seed: int = 0
    """The seed of the random numbers; equal seeds give equal bits."""

    columns: ClassVar[int] = 18
    """The number of features."""
    names: ClassVar[tuple[str, ...]] = NAMES
    """The names of the columns."""
    draw_rows: ClassVar[int] = 250_000
    """Rows of one draw, the unit of random numbers."""
    sparse: ClassVar[bool] = False
    """Whether batches are CSR."""
    classes: ClassVar[tuple[str, ...]] = CLASSES
    """The labels as text, in the order of their numbers."""
    dtype: ClassVar[str] = "float32"
    """The type that holds all numbers."""

    def draw(self, k: int) -> Batch:
        """Return the ``draw_rows`` rows of draw ``k``; they depend on the seed and ``k`` alone."""
        X, probability, rng = self._draw(k)
        return Batch(Dense(X), signs(rng.random(self.draw_rows, np.float32) < probability))

    def probability(self, k: int) -> Float32:
        """Return P(+1 | x) of the rows of draw ``k``, float32 (draw_rows,), by which the best possible classifier
        decides.
        """
        return self._draw(k)[1]

    def batches(self, batch_rows: int = 0) -> Iterator[Batch]:
        """Yield all rows in order, in batches of at most ``batch_rows`` rows (0: one batch per draw)."""
        return cut_batches(self, batch_rows)

    def _draw(self, k: int) -> tuple[Float32, Float32, np.random.Generator]:
        """Return the features of draw ``k``, P(+1 | x) of its rows, and the generator for their labels."""
        rng = np.random.default_rng((self.seed, k))
        q = _draw_measured(rng, self.draw_rows)
        derived = _derive(q, np.float32(0.15) * rng.standard_normal((4, self.draw_rows), np.float32))
        Z = np.stack([*q, *derived])
        for z, (name, (mean, deviation)) in zip(Z, STANDARD.items(), strict=True):
            if name in SKEWED:
                np.log1p(z, out=z)
            np.subtract(z, mean, out=z)
            np.divide(z, deviation, out=z)
        probability = 1 / (1 + np.exp(-SCALE * (_score(dict(zip(NAMES, Z, strict=True))) - OFFSET)))
        return np.ascontiguousarray(Z.T), probability, rng
