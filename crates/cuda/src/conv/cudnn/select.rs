//! Algorithm selection for convolutions: the stored algorithm, or the fastest of cuDNN's engines and im2col.
//!
//! For convolutions of microseconds, the library's heuristic is often wrong. So several engines and im2col are
//! benchmarked, and the result is stored on disk: later processes use the same algorithm, to the same bits. If nothing
//! can be stored, the heuristic decides. For bf16 the library only has engines that compile for a second each: the
//! first proposal is compiled and compared with im2col.

use crate::autotune::bench::Trial;
use crate::autotune::conv_candidate::{ConvCandidate, conv_candidates};
use crate::autotune::select::fastest;
use crate::autotune::store::{Tunable, TuningStore};
use crate::compile::disk_cache::Cache;
use crate::conv::canonical::Geometry;
use crate::conv::cudnn::backend::{GraphPlan, MODES, Proposals};
use crate::conv::cudnn::descriptor::CudnnResult;
use crate::conv::cudnn::failed;
use crate::conv::cudnn::handles::{Handle, Handles};
use crate::conv::cudnn::key::ConvAlgoKey;
use crate::conv::cudnn::legacy::LegacyConv;
use crate::conv::im2col::{Arrangement, arrangements};
use crate::runtime::device::Device;
use bilevel_graph::Result;
use bilevel_plan::internal_error;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Convolutions of at least this many multiplications are autotuned.
const MIN_TUNED_MULTIPLICATIONS: usize = 1 << 20;
/// Workspace in bytes that an algorithm may take in addition to room to convert its operands and its result.
const EXTRA_WORKSPACE_BYTES: usize = 8 << 20;
/// The maximum number of engines after each of the [`MODES`]: each may add some that the others do not know. The
/// library ranks engines in isolation at best: the ninth may take two thirds of the time of the first.
const MAX_ENGINES: [usize; 3] = [16, 24, 24];
/// The kind of stored compiled engines.
const COMPILED: &str = "compiled convolution in two bytes";

/// Serialises trials. Threads may use the same GPU: concurrent trials would disturb each other, and two selections for
/// one convolution could differ in bits.
static TRYING: Mutex<()> = Mutex::new(());

/// The selected algorithm of a convolution.
pub(crate) enum ConvChoice {
    /// By cuDNN.
    Library(LibraryConv),
    /// By im2col and a GEMM.
    Im2col(Arrangement),
}

/// A convolution by cuDNN that is ready to launch.
pub(crate) enum LibraryConv {
    Call(LegacyConv),
    Graph(GraphPlan),
}

impl LibraryConv {
    /// Returns its workspace in bytes.
    pub fn workspace(&self) -> usize {
        match self {
            LibraryConv::Call(call) => call.workspace,
            LibraryConv::Graph(plan) => plan.workspace,
        }
    }

    /// Launches it in the stream of a handle.
    ///
    /// # Safety
    /// As for [`GraphPlan::run`].
    pub unsafe fn run(&self, handle: &Handle, addresses: [u64; 4]) -> CudnnResult<()> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                LibraryConv::Call(call) => call.run(handle, addresses),
                LibraryConv::Graph(plan) => plan.run(handle, addresses),
            }
        }
    }
}

/// A candidate of autotuning.
enum Candidate {
    Library(LibraryConv),
    Im2col(ConvCandidate),
}

impl Candidate {
    fn workspace(&self) -> usize {
        match self {
            Candidate::Library(method) => method.workspace(),
            Candidate::Im2col(candidate) => candidate.workspace,
        }
    }

    fn chosen(self) -> ConvChoice {
        match self {
            Candidate::Library(method) => ConvChoice::Library(method),
            Candidate::Im2col(candidate) => ConvChoice::Im2col(candidate.arrangement),
        }
    }
}

/// Selects algorithms for one GPU.
pub(crate) struct ConvSelector {
    device: Weak<Device>,
    kept: TuningStore,
}

impl ConvSelector {
    pub fn new(device: &Arc<Device>, cache: &Cache, version: usize) -> Self {
        ConvSelector { device: Arc::downgrade(device), kept: TuningStore::new(cache, &device.name, version) }
    }

    /// Selects the algorithm of a geometry; `None` if the library does not support it as required. Queries use the
    /// planning handle, trials those of the streams. The caller must not hold the scratch memory, because a trial waits
    /// for it.
    pub fn choose(&self, planning: &Handle, handles: &Handles<Handle>, geometry: &Geometry) -> Option<ConvChoice> {
        let device = self.device.upgrade()?;
        device.enter().ok()?;
        let elements = [geometry.x, geometry.w, geometry.y].map(|shape| shape.iter().product::<usize>());
        // Room to convert all three, and a little more.
        let most = elements.iter().sum::<usize>() * size_of::<f32>() * 2 + EXTRA_WORKSPACE_BYTES;
        if !is_tried(geometry) || !self.kept.keeps() {
            return self.first(planning, geometry, most).map(ConvChoice::Library);
        }
        if let Some(known) = self.known(planning, geometry, most) {
            return Some(known);
        }
        let _turn = TRYING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.known(planning, geometry, most) {
            return Some(known);
        }
        let mut candidates = candidates(planning, geometry, most);
        if geometry.is_bf16() {
            let compiled = self.compiled(planning, geometry, most);
            candidates.extend(compiled.map(|method| (ConvAlgoKey::Compiled, Candidate::Library(method))));
        }
        if candidates.is_empty() {
            return None;
        }
        let own = conv_candidates(&device, geometry);
        candidates.extend(own.into_iter().map(|own| (ConvAlgoKey::Im2col(own.arrangement), Candidate::Im2col(own))));
        let best = match candidates.len() {
            1 => 0,
            _ => tried(&device, handles, geometry.bytes(), &candidates).ok().flatten().unwrap_or(0),
        };
        let (name, candidate) = candidates.swap_remove(best);
        self.kept.put_choice(geometry, &name);
        Some(candidate.chosen())
    }

    /// Returns the library's first proposal.
    fn first(&self, handle: &Handle, geometry: &Geometry, most: usize) -> Option<LibraryConv> {
        if geometry.is_bf16() { self.compiled(handle, geometry, most) } else { proposed(handle, geometry, most) }
    }

    /// The same for bf16, from the store or compiled now.
    fn compiled(&self, handle: &Handle, geometry: &Geometry, most: usize) -> Option<LibraryConv> {
        let descriptor = geometry.descriptor();
        let before = self.kept.bytes(COMPILED, &descriptor).and_then(|written| GraphPlan::read(handle, &written).ok());
        if let Some(plan) = before.filter(|plan| plan.workspace <= most) {
            return Some(LibraryConv::Graph(plan));
        }
        let method = proposed(handle, geometry, most);
        if let Some(LibraryConv::Graph(plan)) = &method
            && let Ok(written) = plan.written()
        {
            self.kept.put_bytes(COMPILED, &descriptor, &written);
        }
        method
    }

    /// Returns the stored choice for a geometry, if it is still possible.
    fn known(&self, handle: &Handle, geometry: &Geometry, most: usize) -> Option<ConvChoice> {
        let method = match self.kept.choice(geometry)? {
            ConvAlgoKey::Call => called(handle, geometry, most),
            ConvAlgoKey::Compiled => self.compiled(handle, geometry, most),
            ConvAlgoKey::Engine(name) => Proposals::new(handle, geometry).named(&name, most).map(LibraryConv::Graph),
            ConvAlgoKey::Im2col(kept) => {
                return arrangements(geometry).contains(&kept).then_some(ConvChoice::Im2col(kept));
            }
        };
        method.map(ConvChoice::Library)
    }
}

/// Returns true if autotuning pays.
fn is_tried(geometry: &Geometry) -> bool {
    geometry.products() >= MIN_TUNED_MULTIPLICATIONS
}

/// Prepares the legacy call. A geometry that it cannot describe, it cannot compute either.
fn called(handle: &Handle, geometry: &Geometry, most: usize) -> Option<LibraryConv> {
    LegacyConv::first(handle, geometry, most).ok().flatten().map(LibraryConv::Call)
}

/// Returns the library's first proposal.
fn proposed(handle: &Handle, geometry: &Geometry, most: usize) -> Option<LibraryConv> {
    let graph =
        geometry.channels_last().then(|| GraphPlan::first(handle, geometry, most)).flatten().map(LibraryConv::Graph);
    // The legacy API supports one type only.
    graph.or_else(|| if geometry.is_bf16() { None } else { called(handle, geometry, most) })
}

/// Returns the library's candidates, in its order.
fn candidates(handle: &Handle, geometry: &Geometry, most: usize) -> Vec<(ConvAlgoKey, Candidate)> {
    // The legacy API supports one type only.
    let call = || called(handle, geometry, most).filter(|_| !geometry.is_bf16());
    let call = || call().map(|call| (ConvAlgoKey::Call, Candidate::Library(call)));
    let mut found: Vec<(ConvAlgoKey, Candidate)> =
        if geometry.channels_last() { vec![] } else { call().into_iter().collect() };
    let (before, proposals, mut seen) = (found.len(), Proposals::new(handle, geometry), vec![]);
    for (mode, engines) in MODES.into_iter().zip(MAX_ENGINES) {
        for engine in proposals.engines(mode) {
            if found.len() - before >= engines {
                break;
            }
            let Ok(name) = engine.name() else { continue };
            if seen.contains(&name) {
                continue;
            }
            seen.push(name.clone());
            // Run-time compilation pays only for the library's first proposal; for bf16 that is a candidate anyway.
            let first = geometry.channels_last() && !geometry.is_bf16() && found.is_empty();
            if engine.is_compiled() && !first {
                continue;
            }
            if let Some(plan) = proposals.plan(&engine, most) {
                found.push((ConvAlgoKey::Engine(name), Candidate::Library(LibraryConv::Graph(plan))));
            }
        }
    }
    if found.is_empty() && geometry.channels_last() {
        found.extend(call());
    }
    found
}

/// Returns the index of the fastest, with this many bytes for x, w and y; `None` if none runs.
fn tried(
    device: &Arc<Device>,
    handles: &Handles<Handle>,
    [x, w, y]: [usize; 3],
    candidates: &[(ConvAlgoKey, Candidate)],
) -> Result<Option<usize>> {
    let workspace = candidates.iter().map(|(_, candidate)| candidate.workspace()).max().unwrap_or(0);
    let trial = Trial::new(device, [x, w, y, workspace])?;
    let start = |number: usize, branch: usize| -> Result<()> {
        // SAFETY: the addresses are those of x, w, y and a workspace that suffices for all.
        unsafe {
            match &candidates[number].1 {
                Candidate::Library(method) => {
                    let handle = handles.of_stream(branch).ok_or_else(|| internal_error("the handle of a stream"))?;
                    method.run(&handle, trial.places(branch)).map_err(|e| failed("convolve", e))
                }
                Candidate::Im2col(candidate) => candidate.start(device, trial.places(branch), branch),
            }
        }
    };
    Ok(fastest(&trial, candidates.len(), start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conv::canonical::{ConvPass, ImageLayout};
    use crate::conv::im2col::tests::example;
    use bilevel_plan::StorageType;

    #[test]
    fn all_but_the_smallest_are_tried() {
        let layer = example(ConvPass::Wgrad, [32, 192, 384, 8]);
        assert!(
            is_tried(&layer) && is_tried(&Geometry { layout: ImageLayout::Nhwc, storage: StorageType::Bf16, ..layer })
        );
        assert!(!is_tried(&example(ConvPass::Wgrad, [1, 4, 4, 8])));
    }
}
