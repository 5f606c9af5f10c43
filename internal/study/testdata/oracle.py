"""Values for stats_test.go, by other means than the package's: exact fractions where there are some, numerical integration of Student's density,
sums over single observations instead of running sums. Run: python3 oracle.py > oracle.json"""
import json
import math
from fractions import Fraction

Z = 1.959963984540054


def t_quantile(df):
    """97.5 % quantile by bisection over Simpson's rule on the density."""
    c = math.gamma((df + 1) / 2) / (math.sqrt(df * math.pi) * math.gamma(df / 2))

    def inside(t, n=4000):
        h = t / n
        f = lambda x: c * (1 + x * x / df) ** (-(df + 1) / 2)
        return h / 3 * (f(0) + f(t) + sum((4 if i % 2 else 2) * f(i * h) for i in range(1, n)))

    lo, hi = 1.0, 14.0
    for _ in range(48):
        mid = (lo + hi) / 2
        lo, hi = (mid, hi) if inside(mid) < 0.475 else (lo, mid)
    return (lo + hi) / 2


def weights_by_problem(seeds, per, centre):
    groups = {}
    for s, (ids, values) in enumerate(seeds):
        for i, v in zip(ids, values):
            groups.setdefault(i, []).append((Fraction(v) - centre[s]) / per[s])
    return groups


def over_problems(seeds):
    n = len(seeds)
    m = [len(v) + 2 for _, v in seeds]
    centre = [sum(map(Fraction, v)) / k for (_, v), k in zip(seeds, m)]
    groups = weights_by_problem(seeds, [n * k for k in m], centre)
    var = sum(sum(g) ** 2 for g in groups.values())
    for c, k in zip(centre, m):  # the four halves that are added
        for end in (1, -1, 0, 0):
            var += Fraction(1, 2) * (end - c) ** 2 / Fraction(n * k) ** 2
    mid, half = float(sum(centre) / n), Z * math.sqrt(var)
    return [max(-1, mid - half), min(1, mid + half)]


def over_seeds(means):
    n = len(means)
    mean = sum(map(Fraction, means)) / n
    var = sum((Fraction(x) - mean) ** 2 for x in means) / (n - 1) / n
    half = t_quantile(n - 1) * math.sqrt(var)
    return [float(mean) - half, float(mean) + half]


def share(seeds):
    n = len(seeds)
    means = [sum(map(Fraction, v)) / len(v) for _, v in seeds]
    p = sum(means) / n
    groups = weights_by_problem(seeds, [n * len(v) for _, v in seeds], means)
    var = sum(sum(g) ** 2 for g in groups.values())
    size = sum(len(v) for _, v in seeds)
    if var > 0:
        size = min(size, p * (1 - p) / var)
    # The ends of Wilson's interval solve (p - x)^2 = z^2 x (1 - x) / n.
    p, size = float(p), float(size)
    a, b, c = 1 + Z * Z / size, -(2 * p + Z * Z / size), p * p
    d = math.sqrt(max(0, b * b - 4 * a * c))
    return [max(0.0, (-b - d) / (2 * a)), min(1.0, (-b + d) / (2 * a))]


cases = {
    "one seed": [(["a", "b", "c", "d", "e", "f"], [1, 1, 0, 0, -1, 1])],
    "no difference at all": [(["a", "b", "c", "d"], [0, 0, 0, 0]), (["a", "b", "e", "f"], [0, 0, 0, 0])],
    "always better": [([f"p{i}" for i in range(20)], [1] * 20), ([f"q{i}" for i in range(20)], [1] * 20)],
    "own problems": [(["a", "b", "c", "d", "e"], [1, 0, 1, 1, -1]), (["f", "g", "h", "i", "j"], [0, 0, 1, 1, 1]), (["k", "l", "m", "n", "o"], [1, 0, 0, -1, 0])],
    "shared problems": [(["a", "b", "c", "d", "e"], [1, 0, 1, 1, -1]), (["a", "b", "c", "i", "j"], [1, 0, 1, 1, 1]), (["c", "b", "m", "n", "a"], [1, 0, 0, -1, 1])],
    "shares of tests": [(["a", "b", "c"], [0.5, 0.25, -0.75]), (["a", "d", "e"], [0.125, 0.25, 0.5])],
    "seeds of other sizes": [(["a", "b", "c", "d", "e", "f", "g"], [1, 1, 1, 0, 0, 0, 1]), (["a", "h"], [1, 0])],
}
out = {"t": {str(df): t_quantile(df) for df in (1, 2, 3, 4, 5, 9, 10, 29)}, "cases": []}
for name, seeds in cases.items():
    means = [float(sum(map(Fraction, v)) / len(v)) for _, v in seeds]
    right = [(ids, [abs(v) for v in values]) for ids, values in seeds]
    out["cases"].append({
        "name": name, "seeds": [{"ids": i, "values": v} for i, v in seeds], "means": means, "over_problems": over_problems(seeds),
        "over_seeds": over_seeds(means) if len(means) > 1 else None, "share": share(right),
    })
print(json.dumps(out, indent=1))
