//! Every reader on valid files that were damaged at random. Each input follows from its number, so a failure can be
//! made again.

#[path = "../common/mod.rs"]
mod common;
mod memory;
mod mutate;

use bilevel_data::readers::{cifar, csv, idx, libsvm, npy, pictures, safetensors, views};
use bilevel_data::{Error, Input, Limits};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Tight enough that an input can ask for too much.
const LIMITS: Limits = Limits { bytes: 4 << 20, expansion: 250, entries: 1000, pixels: 1 << 16 };
/// The most that may be allocated in one piece. Twice the limit, because vectors double as they grow.
const MOST: usize = 8 << 20;
/// The same where xz is unpacked, whose dictionary may have 128 MiB whatever the file's size.
const MOST_XZ: usize = 130 << 20;

/// A reader, with valid files to begin with.
pub struct Target {
    pub name: &'static str,
    seeds: Vec<Vec<u8>>,
    read: fn(Input) -> Result<(), Error>,
    /// What is done to a damaged file before it is read.
    wrap: fn(Vec<u8>) -> Vec<u8>,
    most: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Tally {
    pub accepted: u64,
    pub refused: u64,
    /// Numbers of inputs that made the reader panic.
    pub panics: Vec<u64>,
    /// Numbers of inputs that made it allocate too much at once, with the bytes.
    pub giants: Vec<(u64, usize)>,
}

pub fn targets() -> Vec<Target> {
    use common::*;
    let target = |name, read, seeds| Target { name, seeds, read, wrap: |bytes| bytes, most: MOST };
    let digits = idx(8, &[3, 4, 4], &(0..48).collect::<Vec<u8>>());
    let floats: Vec<u8> = (0..12).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let rows = "+1 1:0.5 2:1e-3 7:-4\n-1 3:2 # comment\n0 \n";
    let table = "width,height,\"kind\"\n1.5,2,cat\n-3e4,4,dog\n";
    let batches = [("c/data_batch_1.bin", cifar(&[&[1]])), ("c/test_batch.bin", cifar(&[&[2]]))];
    let drawings = [("a/x.png", png(9, 7, 1)), ("b/y.jpg", jpeg(9, 7, 2)), ("b/z.png", png_with_opacity(9, 7, 3))];
    let scene = [
        ("s/t.json", transforms(&["./r_0", "r_1.png"])),
        ("s/r_0.png", png_with_opacity(5, 4, 0)),
        ("s/r_1.png", png(5, 4, 1)),
    ];
    let arrays = [("x", npy("<f4", false, "(3, 4)", &floats)), ("y", npy(">i2", true, "(2,)", &[0, 1, 0, 2]))];
    let archive = arrays.clone().map(|(name, bytes)| (if name == "x" { "x.npy" } else { "y.npy" }, bytes));
    let weights = self::common::safetensors(&[
        ("a", ::safetensors::Dtype::F32, &[3, 4], &floats),
        ("b", ::safetensors::Dtype::BF16, &[2], &floats[..4]),
    ]);
    let read_idx: fn(Input) -> _ = |input| idx::read(input).map(drop);
    let read_libsvm: fn(Input) -> _ = |input| libsvm::read(input, libsvm::FirstIndex::One)?.to_table(None).map(drop);
    let read_pictures: fn(Input) -> _ = |input| {
        let settings = pictures::Settings { size: Some([6, 6]), ..pictures::Settings::default() };
        pictures::read(input, &settings)?.by_folder().map(drop)
    };
    let read_batches: fn(Input) -> _ =
        |input| cifar::read_archive(input, cifar::Kind::Ten, cifar::Part::Train).map(drop);
    vec![
        target("idx", read_idx, vec![digits.clone(), idx(13, &[2], &[0; 8])]),
        target("idx.gz", read_idx, vec![gzip(&digits)]),
        target("cifar", |input| cifar::read(input, cifar::Kind::Hundred).map(drop), vec![cifar(&[&[3, 9], &[0, 99]])]),
        target("cifar.tar", read_batches, vec![tar(&batches)]),
        target("cifar.tar.gz", read_batches, vec![gzip(&tar(&batches))]),
        target("npy", |input| npy::read(input).map(drop), arrays.map(|(_, bytes)| bytes).to_vec()),
        target("npz", |input| npy::read_npz(input).map(drop), vec![zip(&archive)]),
        target("safetensors", |input| safetensors::read(input).map(drop), vec![weights]),
        target("libsvm", read_libsvm, vec![rows.into()]),
        target("libsvm.bz2", read_libsvm, vec![bzip2(rows.as_bytes())]),
        target("csv", |input| csv::read(input, &named()).map(drop), vec![table.into()]),
        target("pictures.tar", read_pictures, vec![tar(&drawings), tar(&drawings[..1]), tar(&drawings[1..2])]),
        target("pictures.zip", read_pictures, vec![zip(&drawings)]),
        Target { most: MOST_XZ, ..target("pictures.tar.xz", read_pictures, vec![xz(&tar(&drawings))]) },
        // A tar file has checksums of its own; here only what is in it is damaged.
        Target {
            wrap: with_checksums,
            ..target("png", read_pictures, vec![drawings[0].1.clone(), drawings[2].1.clone()])
        },
        Target { wrap: in_tar, ..target("jpeg", read_pictures, vec![drawings[1].1.clone(), jpeg(33, 18, 5)]) },
        target("views.tar", |input| views::read(input, "t.json").map(drop), vec![tar(&scene)]),
    ]
}

fn in_tar(picture: Vec<u8>) -> Vec<u8> {
    common::tar(&[("a/x.png", picture)])
}

/// A PNG file whose chunks have the checksums they should have, so that what is in them is decoded.
fn with_checksums(mut picture: Vec<u8>) -> Vec<u8> {
    let mut place = 8;
    while let Some(length) = picture.get(place..).and_then(|rest| rest.first_chunk()) {
        let end = place.saturating_add(8).saturating_add(u32::from_be_bytes(*length) as usize);
        let Some(chunk) = picture.get(place + 4..end) else { break };
        let mut checksum = flate2::Crc::new();
        checksum.update(chunk);
        picture.iter_mut().skip(end).zip(checksum.sum().to_be_bytes()).for_each(|(byte, right)| *byte = right);
        place = end + 4;
    }
    in_tar(picture)
}

fn named() -> csv::Format {
    csv::Format { header: csv::Header::Names, ..csv::Format::default() }
}

impl Target {
    /// What the reader says to a valid file.
    pub fn sound(&self) -> Result<(), Error> {
        self.seeds.iter().try_for_each(|seed| (self.read)(Input::from_bytes(self.name, (self.wrap)(seed.clone()))))
    }

    /// Reads one damaged file.
    fn one(&self, number: u64, tally: &mut Tally) {
        let input = (self.wrap)(mutate::damaged(&self.seeds, number));
        memory::forget();
        let read = AssertUnwindSafe(|| (self.read)(Input::from_bytes(self.name, &input).limited(LIMITS)));
        match catch_unwind(read) {
            Ok(Ok(())) => tally.accepted += 1,
            Ok(Err(_)) => tally.refused += 1,
            Err(_) => tally.panics.push(number),
        }
        let largest = memory::largest();
        if largest > self.most {
            tally.giants.push((number, largest));
        }
    }

    /// Reads this many damaged files, on this many threads. A large allocation is found wherever it is made; with more
    /// than one thread, it may be put down to an input that ran beside it.
    pub fn run(&self, inputs: u64, threads: usize) -> Tally {
        let next = AtomicU64::new(0);
        let work = || {
            let mut tally = Tally::default();
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= inputs {
                    return tally;
                }
                self.one(number, &mut tally);
            }
        };
        let mut sum = Tally::default();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            for tally in workers.into_iter().filter_map(|worker| worker.join().ok()) {
                sum.accepted += tally.accepted;
                sum.refused += tally.refused;
                sum.panics.extend(tally.panics);
                sum.giants.extend(tally.giants);
            }
        });
        sum
    }
}
