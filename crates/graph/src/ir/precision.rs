//! How exactly matrix products and convolutions multiply: an attribute of theirs, set in a program that is finished.

use crate::DType;
use crate::ir::op::Op;
use crate::ir::program::Program;
use std::fmt;
use std::str::FromStr;

/// The precision to which the operands of a product of 32-bit floats are rounded, and its result:
///
/// y = round_y(Σₖ round(aₖ)·round(bₖ))
///
/// with sums and all other operations in 32-bit floats. A number is rounded to the nearest one with p binary digits,
/// ties to even. It has the exponents of 32-bit floats: numbers that are too large become infinite, infinities and NaN
/// are kept, and numbers below 2⁻¹²⁶ are on the grid of those just above. All other numbers have a relative error of at
/// most 2⁻ᵖ ([`unit`](Self::unit)).
///
/// | precision | p of operands | 2⁻ᵖ | p of results |
/// |---|---|---|---|
/// | `Full` | 24 | no rounding at all | 24 |
/// | `Tf32` | 11 | 4.9e-4 | 24 |
/// | `Bf16` | 8 | 3.9e-3 | 8 |
///
/// Results in `Bf16` take half the memory, and half the time to read and write. PyTorch's autocast gives such results
/// too, as does JAX with arrays of that type; but here sums of several products, normalisation, activations, losses and
/// updates are computed in 32 bits.
///
/// The [`Reference`](crate::Reference) does exactly this. A machine whose products take such operands rounds to `Bf16`
/// in the same way. Hardware may truncate a `Tf32` operand instead of rounding it, with up to twice the error. It may
/// also multiply scaled fp16 with as many digits and a power of two for each array. Elements below 2⁻²⁸ of the largest
/// of their array then have fewer digits, and an error of at most 2⁻³⁹ of the largest. Products of 64-bit floats have
/// one precision, `Full`.
///
/// ```
/// use bilevel_graph::Precision;
/// let third = 1.0f32 / 3.0;
/// assert_eq!(Precision::Bf16.round(third), 171.0 / 512.0); // 0.33398…
/// assert_eq!(Precision::Tf32.round(third), 1365.0 / 4096.0); // 0.33325…
/// assert_eq!(Precision::Full.round(third), third);
/// assert_eq!("bf16".parse(), Ok(Precision::Bf16));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Precision {
    /// Operands as they are.
    #[default]
    Full,
    /// Operands of 11 binary digits, 10 of them stored.
    Tf32,
    /// Operands and results of 8 binary digits, 7 of them stored.
    Bf16,
}

impl Precision {
    /// Every precision, the most exact first.
    pub const ALL: [Precision; 3] = [Precision::Full, Precision::Tf32, Precision::Bf16];

    /// Its name in configurations: `full`, `tf32` or `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            Precision::Full => "full",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
        }
    }

    /// How many of the 23 stored digits of a 32-bit float are rounded away.
    pub const fn dropped_bits(self) -> u32 {
        match self {
            Precision::Full => 0,
            Precision::Tf32 => 13,
            Precision::Bf16 => 16,
        }
    }

    /// Returns true if the results of products are rounded like their operands.
    pub const fn rounds_results(self) -> bool {
        matches!(self, Precision::Bf16)
    }

    /// The largest relative error of a rounded operand, 2⁻ᵖ; 0 for `Full`, which does not round.
    pub fn unit(self) -> f64 {
        match self {
            Precision::Full => 0.0,
            Precision::Tf32 => 2f64.powi(-11),
            Precision::Bf16 => 2f64.powi(-8),
        }
    }

    /// The operand a product computes with.
    #[inline]
    pub const fn round(self, x: f32) -> f32 {
        let (bits, dropped) = (x.to_bits(), self.dropped_bits());
        if dropped == 0 || x.is_nan() {
            return x;
        }
        // Adding just under half of the last digit kept, or half if that digit is 1, carries into it if necessary.
        let odd = (bits >> dropped) & 1;
        let carried = bits + (1 << (dropped - 1)) - 1 + odd;
        f32::from_bits(carried >> dropped << dropped)
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Precision::ALL.into_iter().find(|precision| precision.name() == name);
        known.ok_or_else(|| format!("'{name}' is not a precision; use full, tf32 or bf16"))
    }
}

impl Program {
    /// The same program with all its matrix products and convolutions of 32-bit floats in this precision; those of
    /// 64-bit floats are unchanged. A program is rewritten when it is finished, derivatives included, so both losses
    /// and every product with their derivatives round alike.
    ///
    /// ```
    /// use bilevel_graph::{Array, DType, Executor, Graph, Precision, Program, Reference};
    /// let g = Graph::new();
    /// let x = g.input("x", [1, 2], DType::F32);
    /// let program = Program::builder(&g).output("y", x.matmul(x.t())).build()?;
    /// let squares = |precision| -> bilevel_graph::Result<Option<f64>> {
    ///     let mut run = Reference.compile(&program.clone().with_precision(precision))?;
    ///     run.set(0, &Array::from_f32([1, 2], vec![1.0 + 1.0 / 256.0, 1.0])?)?;
    ///     run.run(0..1)?;
    ///     Ok(run.output(0)?.item())
    /// };
    /// // 1 + 2⁻⁸ lies between two numbers of 8 digits and goes to the even one, 1.
    /// assert_eq!(squares(Precision::Bf16)?, Some(2.0));
    /// assert_eq!(squares(Precision::Full)?, Some(2.0 + 2.0 / 256.0 + 1.0 / 65536.0));
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    pub fn with_precision(mut self, precision: Precision) -> Program {
        for node in self.nodes.iter_mut().filter(|node| node.meta.dtype == DType::F32) {
            if let Op::Dot(_, of_node) | Op::Conv(_, _, of_node) = &mut node.op {
                *of_node = precision;
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Dice;

    /// The nearest multiple of a power of two, ties to the even multiple, in arithmetic instead of bits.
    fn nearest(x: f32, digits: i32) -> f32 {
        if x == 0.0 || !x.is_finite() {
            return x;
        }
        let exponent = (x.abs().log2().floor() as i32).max(-126);
        // The logarithm of a number just below a power of two may round up to it.
        let exponent = if x.abs() < 2f32.powi(exponent) && exponent > -126 { exponent - 1 } else { exponent };
        let grid = 2f64.powi(exponent + 1 - digits);
        ((x as f64 / grid).round_ties_even() * grid) as f32
    }

    #[test]
    fn rounding_takes_the_nearest_number_of_so_many_digits_and_of_two_the_even_one() {
        let mut dice = Dice::new(1);
        let ties = [1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, -1.0 - 1.0 / 2048.0, 1.0 + 3.0 / 2048.0, 255.5];
        let odd = [0.0, -0.0, f32::MIN_POSITIVE, f32::from_bits(1), f32::from_bits(0x0000_8001), f32::INFINITY, 3e38];
        let wide = (0..20_000).map(|_| f32::from_bits((dice.uniform().abs() * 2e9) as u32));
        for x in ties.into_iter().chain(odd).chain(wide).filter(|x| !x.is_nan()) {
            for (precision, digits) in [(Precision::Tf32, 11), (Precision::Bf16, 8)] {
                let (found, right) = (precision.round(x), nearest(x, digits));
                assert_eq!(found.to_bits(), right.to_bits(), "{x:e} in {precision}: {found:e}, {right:e}");
                assert_eq!(precision.round(found).to_bits(), found.to_bits(), "{x:e} rounded twice");
            }
            assert_eq!(Precision::Full.round(x).to_bits(), x.to_bits());
        }
    }

    #[test]
    fn what_is_too_large_becomes_infinite_and_nan_stays_nan() {
        assert_eq!(Precision::Bf16.round(f32::MAX), f32::INFINITY);
        assert_eq!(Precision::Tf32.round(-f32::MAX), -f32::INFINITY);
        // A NaN told from infinity by its last bit alone.
        let faint = f32::from_bits(f32::INFINITY.to_bits() | 1);
        assert!(Precision::ALL.into_iter().all(|precision| precision.round(faint).is_nan()));
    }

    #[test]
    fn a_name_is_read_back_as_its_precision_and_another_word_is_refused() {
        for precision in Precision::ALL {
            assert_eq!(precision.to_string().parse(), Ok(precision));
        }
        assert_eq!("fp8".parse::<Precision>().unwrap_err(), "'fp8' is not a precision; use full, tf32 or bf16");
    }
}
