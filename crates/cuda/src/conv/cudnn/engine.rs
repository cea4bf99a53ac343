//! An engine of cuDNN's with its settings: what the library says of it, and a name by which a later process knows it
//! again.

use crate::conv::canonical::Geometry;
use crate::conv::cudnn::descriptor::{CudnnResult, Descriptor};
use cudarc::cudnn::sys;
use sys::cudnnBackendAttributeName_t as Name;
use sys::cudnnBackendAttributeType_t as Type;
use sys::cudnnBackendBehaviorNote_t as Behaviour;
use sys::cudnnBackendDescriptorType_t as Kind;
use sys::cudnnBackendNumericalNote_t as Note;

/// Most notes an engine may have.
const MAX_NOTES: usize = 32;
/// Most settings an engine may have.
const MAX_KNOBS: usize = 64;
/// What engines do that may give other bits each time, or are less exact than a plain sum of products.
const REFUSED: [Note; 8] = [
    Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
    Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
    Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
    Note::CUDNN_NUMERICAL_NOTE_FFT,
    Note::CUDNN_NUMERICAL_NOTE_WINOGRAD,
    Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
    Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
    Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
];

/// What tells an engine with its settings from all others of one version of the library: its number, then kind and
/// value of each setting, in the order of their kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EngineName(pub Vec<u64>);

/// A way that the library proposes to compute a graph.
pub(crate) struct Engine {
    /// The engine with its settings.
    pub config: Descriptor,
    engine: Descriptor,
    /// What it does with numbers; none if the library does not say.
    notes: Option<Vec<u32>>,
}

impl Engine {
    /// The engine that a proposal is of.
    pub fn new(config: Descriptor) -> CudnnResult<Self> {
        let engine = Descriptor::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
        config.get(Name::CUDNN_ATTR_ENGINECFG_ENGINE, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut [engine.0])?;
        let notes = noted(&engine, Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, Type::CUDNN_TYPE_NUMERICAL_NOTE);
        Ok(Engine { config, engine, notes })
    }

    /// True if it always gives the same bits, is as exact as a plain sum of products, and rounds operands only if they
    /// may be.
    pub fn suits(&self, geometry: &Geometry) -> bool {
        let Some(notes) = &self.notes else { return false };
        let says = |note: Note| notes.contains(&(note as u32));
        let exact = geometry.rounds || !says(Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
        exact && !REFUSED.into_iter().any(says)
    }

    /// True if its kernels are compiled when it is made ready, which takes a second or so; also where the library does
    /// not say.
    pub fn is_compiled(&self) -> bool {
        let (name, kind) = (Name::CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, Type::CUDNN_TYPE_BEHAVIOR_NOTE);
        let compiled = Behaviour::CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION as u32;
        noted(&self.engine, name, kind).is_none_or(|notes| notes.contains(&compiled))
    }

    /// Its name. Where the library does not tell its settings, all proposals of the engine have the same.
    pub fn name(&self) -> CudnnResult<EngineName> {
        let mut number = [0i64];
        self.engine.get(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, Type::CUDNN_TYPE_INT64, &mut number)?;
        let mut knobs = self.knobs().unwrap_or_default();
        knobs.sort_unstable();
        let knobs = knobs.into_iter().flat_map(|(kind, value)| [u64::from(kind), value as u64]);
        Ok(EngineName([number[0] as u64].into_iter().chain(knobs).collect()))
    }

    /// Kind and value of each setting.
    fn knobs(&self) -> CudnnResult<Vec<(u32, i64)>> {
        let name = Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES;
        let choices = self.config.referred(name, Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, MAX_KNOBS)?;
        let read = |choice: &Descriptor| {
            // As a number: a newer library may have settings that have no name here.
            let (mut kind, mut value) = ([0u32], [0i64]);
            choice.get(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, Type::CUDNN_TYPE_KNOB_TYPE, &mut kind)?;
            choice.get(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, Type::CUDNN_TYPE_INT64, &mut value)?;
            Ok((kind[0], value[0]))
        };
        choices.iter().map(read).collect()
    }
}

/// The notes of an engine, as numbers: a newer library may have some that have no name here. None where they cannot be
/// read.
fn noted(engine: &Descriptor, name: Name, kind: Type) -> Option<Vec<u32>> {
    let mut notes = vec![0u32; MAX_NOTES];
    let count = engine.get(name, kind, &mut notes).ok().filter(|&count| count <= MAX_NOTES)?;
    notes.truncate(count);
    Some(notes)
}
