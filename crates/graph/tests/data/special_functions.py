"""Prints the table special_functions.tsv: function, argument, and the value as the sum of two 64-bit floats. Needs mpmath.

    python3 crates/graph/tests/data/special_functions.py > crates/graph/tests/data/special_functions.tsv

Arguments are 32-bit floats, so that one table serves both types.
"""

import struct

from mpmath import atan, digamma, erfc, floor, gamma, log, mp, mpf, psi

mp.dps = 400


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def table(name, function, arguments):
    for x in sorted({single(x) for x in arguments}):
        exact = function(mpf(x))
        print(name, repr(x), repr(float(exact)), repr(float(exact - float(exact))), sep="\t")


spread = [2.0**k * f for k in range(-30, 31, 3) for f in (1.0, 1.3, 1.7)]
near_one = [1 + sign * 2.0**-k for k in range(1, 23, 2) for sign in (1, -1)]
near_two = [2 + sign * 2.0**-k for k in range(1, 22, 2) for sign in (1, -1)]
root = 1.4616321449683623
near_root = [root + sign * 2.0**-k for k in range(2, 23, 2) for sign in (1, -1)] + [root]
steps = [0.1 * k for k in range(1, 140)]
negative = [-x for x in steps + [33.3, 100.7] if single(x) != floor(single(x))]

table("erfc", erfc, [-x for x in steps if x < 6] + steps + [1e-20, 1e-5, 20.5, 26.0])
table("atan", atan, spread + [-x for x in spread] + steps)
table("ln_gamma", lambda x: log(abs(gamma(x))), [x for x in spread if x < 1e6] + near_one + near_two + steps)
table("digamma", digamma, [x for x in spread if x < 1e6] + near_root + steps + negative)
for n in (1, 2, 3, 4, 7, 12, 20):
    few = [0.01, 0.3, 0.5, 0.9, 1.0, 1.5, 2.0, 3.3, 7.7, 11.1, 25.0, 70.0, 1000.0]
    table(f"polygamma {n}", lambda x: psi(n, x), few + [-x for x in (0.25, 0.75, 1.1, 2.3, 5.9, 12.6)])
