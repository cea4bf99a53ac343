//! The chapters of the guide: their programs are compiled and run with the other tests.

macro_rules! chapters {
    ($($name:ident $file:literal)*) => {
        $(#[doc = include_str!(concat!("../../../docs/guide/src/", $file))] struct $name;)*
    };
}

chapters! {
    Introduction "introduction.md"
    Concepts "concepts.md"
    Methods "methods.md"
    Writing "problem.md"
    Data "data.md"
    Metrics "metrics.md"
    Generalisation "generalisation.md"
    Diagnostics "diagnostics.md"
    Gallery "gallery.md"
    Existence "existence.md"
    Command "command.md"
    Reproducing "reproducing.md"
    Gpu "gpu.md"
    Ranks "ranks.md"
    Python "python.md"
    ComingFrom "python-coming-from.md"
    FromOptuna "coming-from.md"
    Speed "speed.md"
    Extending "extending.md"
    Mathematics "mathematics.md"
}
