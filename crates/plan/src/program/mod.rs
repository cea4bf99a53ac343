//! Rewrites of a program before it is lowered: layout assignment and the decomposition of max pools.

pub(crate) mod channels_last;
pub(crate) mod layout_rewriter;
pub(crate) mod max_pool;
pub(crate) mod pad_channels;
