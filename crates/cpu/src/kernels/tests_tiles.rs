//! tiles
