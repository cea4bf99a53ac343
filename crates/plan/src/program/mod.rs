//! Rewrites of a program before it is lowered: channel padding, the decomposition of max pools and their gradients, and
//! layout assignment.

pub(crate) mod channels_last;
pub(crate) mod layout_rewriter;
pub(crate) mod max_pool;
pub(crate) mod pad_channels;
pub(crate) mod pool_gradient;
