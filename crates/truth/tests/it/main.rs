//! The tests of this crate as one program, so that they are linked once.

mod independent;
mod oracle;
mod ranks;
mod sharding;
mod traffic;
mod truth;
