//! Derivatives: vector-Jacobian products by one rule per primitive, their transposes, and Gauss-Newton products.

pub(crate) mod conv_rules;
pub(crate) mod custom;
pub(crate) mod gauss_newton;
pub(crate) mod primals;
pub(crate) mod transform;
pub(crate) mod vjp_rules;
