//! Rewrites of a program before it is lowered: layout assignment the decomposition of max pools and their gradients.

pub(crate) mod channels_last;
pub(crate) mod layout_rewriter;
pub(crate) mod max_pool;
pub(crate) mod pad_channels;
pub(crate) mod pool_gradient;
