//! The elementwise functions that are one or two instructions: signs, arithmetic, comparisons, selection.

use crate::kernels::maps::{Binary, Ternary, Unary};
use crate::simd::{Float, Num};

/// Defines a zero-sized function by its formula on vectors.
macro_rules! define {
    ($trait:ident, $bound:ident, $name:ident, $doc:literal, |$($x:ident),+| $body:expr) => {
        #[doc = $doc]
        pub(crate) struct $name;
        impl<V: $bound> $trait<V> for $name {
            #[inline(always)]
            fn apply($($x: V),+) -> V {
                $body
            }
        }
    };
}

define!(Unary, Num, Neg, "−a", |a| a.negated());
define!(Unary, Num, Abs, "|a|", |a| a.abs());
define!(Unary, Num, Sign, "−1, 0 or 1", |a| a.sign());
define!(Unary, Float, Floor, "⌊a⌋", |a| a.floor());
define!(Unary, Float, Recip, "1/a", |a| a.of(1.0) / a);
define!(Unary, Float, Sqrt, "√a", |a| a.sqrt());

define!(Binary, Num, Add, "a + b", |a, b| a.plus(b));
define!(Binary, Num, Sub, "a − b", |a, b| a.minus(b));
define!(Binary, Num, Mul, "a·b", |a, b| a.times(b));
define!(Binary, Float, Div, "a/b", |a, b| a / b);
define!(Binary, Num, Max, "the larger", |a, b| a.max(b));
define!(Binary, Num, Min, "the smaller", |a, b| a.min(b));
define!(Binary, Num, Eq, "a = b", |a, b| a.truth(a.equal(b)));
define!(Binary, Num, Ne, "a ≠ b", |a, b| a.truth(!a.equal(b)));
define!(Binary, Num, Lt, "a < b", |a, b| a.truth(a.less(b)));
define!(Binary, Num, Le, "a ≤ b", |a, b| a.truth(a.at_most(b)));

// The product is rounded before the sum: fusing must not change the result of the two instructions.
define!(Ternary, Num, MulAdd, "a·b + c", |a, b, c| a.times(b).plus(c));
define!(Ternary, Num, MulSub, "a·b − c", |a, b, c| a.times(b).minus(c));
define!(Ternary, Num, SubMul, "c − a·b", |a, b, c| c.minus(a.times(b)));
define!(Ternary, Num, Select, "a where the mask is not 0, else b", |mask, a, b| V::select(
    mask.equal(mask.all(V::ZERO)),
    b,
    a
));
