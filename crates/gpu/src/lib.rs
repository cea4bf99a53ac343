//! Kernels and their schedule for any GPU.
//!
//! This crate turns the groups of a schedule of `bilevel-plan` into kernels and library calls, and assigns these to
//! streams. It is independent of machines: a [`Renderer`](codegen::renderer::Renderer) spells kernels in the language
//! of a GPU, and a [`Backend`](compile::backend::Backend) adds the calls of its libraries. A second GPU is these two
//! and a runtime that submits the steps.

#![warn(clippy::too_many_lines)]

pub mod codegen;
pub mod compile;
pub mod schedule;

#[cfg(test)]
mod host;
