//! The tests of this crate as one program, so that they are linked once.

mod oracle;
mod ranks;
mod truth;
