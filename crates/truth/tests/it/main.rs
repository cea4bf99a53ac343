//! The tests of this crate as one program, so that they are linked once.

mod independent;
mod oracle;
mod ranks;
mod traffic;
mod truth;
